"""The records and bytes that cross from the builder to the runtime. Imports no torch."""

from .bucket import Bucket, Range
from .container import Artifact, Content, write
from .errors import FormatError, TcbuildError
from .guard import Guard
from .manifest import Manifest
from .section import Section
from .signature import Signature
from .target import Target
from .variant import Variant

__all__ = [
    "Artifact",
    "Bucket",
    "Content",
    "FormatError",
    "Guard",
    "Manifest",
    "Range",
    "Section",
    "Signature",
    "Target",
    "TcbuildError",
    "Variant",
    "write",
]
