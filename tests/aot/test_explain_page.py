"""The page of an explanation: whole, escaped, and with nothing from elsewhere."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tcbuild.aot import Spec
from tcbuild.aot.errors import OutputError
from tcbuild.aot.explain import page
from tcbuild.aot.explain.explanation import Explanation, explain

from ..conftest import CommandLine

VOID = {"meta", "wbr"}


class Outline(HTMLParser):
    """Refuses an element that is not closed where it should be; keeps ids, links, headings and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        assert len(given) == len(attrs)
        self.attributes |= given.keys()
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


class Noisy(nn.Module):
    """Breaks between its layers, and says why in markup."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Take x, float32 [rows, 4]."""
        x = torch.relu(self.up(x))
        print("<script>alert('&amp;')</script>")
        made: Tensor = self.down(x * 2)
        return made


class Outer(nn.Module):
    """Holds one that is cut, and one that is whole; branches on data behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.noisy = Noisy()
        self.last = nn.Linear(4, 4)
        self.title = "<b>bold</b> & more"

    def forward(self, x: Tensor, mode: str) -> Tensor:
        """Take x, float32 [rows, 4]."""
        x = self.last(self.noisy(x))
        if x.sum() > 3:
            x = x + 1
        return x


@pytest.fixture(scope="module")
def found() -> Explanation:
    """Return what is found in a model with two breaks, whose values are markup."""
    spec = Spec.from_module(
        Outer().eval(), (torch.ones(16, 4), '"><img src=x onerror=alert(1)>'), name="<i>outer</i>"
    )
    return explain(spec)


@pytest.fixture(scope="module")
def outline(found: Explanation) -> Outline:
    """Return the page of it."""
    return Outline(page.text(found))


def test_what_the_user_wrote_is_text(outline: Outline) -> None:
    assert not {"script", "b", "i", "img", "link", "iframe"} & set(outline.tags)
    assert not any(name.startswith("on") or name == "src" for name in outline.attributes)
    for text in (
        "<script>alert('&amp;')</script>",
        "<b>bold</b> & more",
        "<img src=x",
        "<i>outer</i>",
    ):
        assert text in outline.text


def test_nothing_is_from_elsewhere(found: Explanation, outline: Outline) -> None:
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert len(set(outline.ids)) == len(outline.ids)
    assert not re.search(r"https?:|url\(|@import|//\w", page.text(found))


def test_every_break_with_its_line_its_cost_and_ways_out(
    found: Explanation, outline: Outline
) -> None:
    assert len(found.findings) == 2
    assert found.findings[0].stops
    for number, one in enumerate(found.findings, start=1):
        assert f"break-{number}" in outline.ids
        assert one.line is not None
        assert one.line.code in outline.text
        assert str(one.line) in outline.text
        for way in one.reason.ways_out:
            assert way.replace("`", "") in outline.text
    assert "1 of 1 job cannot be captured" in outline.text
    for hazard in found.hazards:
        assert hazard.place in outline.text
        assert hazard.spec in outline.text


def test_modules_and_cuts(found: Explanation, outline: Outline) -> None:
    (compiled,) = found.compiled
    parts = {part.name: part for part in compiled.parts.walk()}
    assert parts.keys() == {"", "noisy", "up", "down", "last"}
    assert [line.code for line in parts["noisy"].breaks] == [found.findings[1].line.code]  # type: ignore[union-attr]
    assert parts[""].cut
    assert not parts["last"].cut
    assert parts["up"].graphs == (1,)
    assert parts["down"].graphs != parts["up"].graphs
    assert parts["up"].operators
    assert parts["up"].weights == (4 * 8 + 8) * 4
    first = compiled.steps[0]
    assert [str(one) for one in first.crossings] == ["float32[16, 8]"]
    assert first.breaks == (found.findings[1].line,)
    assert len({step.graph for step in compiled.steps}) == compiled.pieces
    assert "512 B through memory: float32[16, 8] (512 B)" in outline.text


def test_the_command_writes_it_whole_or_not_at_all(
    tcbuild: CommandLine, tiny_spec_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    ran = tcbuild("explain", tiny_spec_dir / "tcbuild.toml", "--html", file)
    assert ran.returncode == 0
    assert f"wrote {file}" in ran.stdout
    outline = Outline(file.read_text(encoding="utf-8"))
    assert "a build is expected to succeed" in outline.text
    assert "x.size(0)" in outline.text
    assert "2..64" in outline.text
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    spec = tmp_path / "tcbuild.toml"
    spec.write_text("[model]\nsource = 3\n", encoding="utf-8")
    before = file.read_bytes()
    assert tcbuild("explain", spec, "--html", file).returncode != 0
    assert file.read_bytes() == before
    lost = tcbuild("explain", spec, "--html", tmp_path / "none" / "page.html")
    assert lost.returncode == OutputError.exit_code
    assert "no folder" in lost.stderr
