"""The driver of the C++ compiler, and what it puts in place of a part of torch's headers."""

import subprocess
from pathlib import Path

from tcbuild.aot import toolchain

SAME = """
#include <regex>
#include <string>
static bool whole(const std::string& name, std::string& kind, std::string& number, bool& numbered) {
  std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");
  std::smatch sm;
  if (!std::regex_match(name, sm, re)) return false;
  kind = sm[1].str(), number = sm[3].str(), numbered = sm[3].matched;
  return true;
}
#include "device_names.hpp"
static bool quick(const std::string& name, std::string& kind, std::string& number, bool& numbered) {
  std::regex re("(cpu|cuda|xpu|mps)(:([0-9]+))?");
  std::smatch sm;
  if (!std::regex_match(name, sm, re)) return false;
  kind = sm[1].str(), number = sm[3].str(), numbered = sm[3].matched;
  return true;
}
int main(int, char** names) {
  for (++names; *names; ++names) {
    std::string a, b, c, d;
    bool e = false, f = false;
    if (whole(*names, a, b, e) != quick(*names, c, d, f) || a != c || b != d || e != f) return 1;
  }
  return 0;
}
"""
NAMES = (
    *(
        "cpu",
        "cuda",
        "cuda:0",
        "cuda:12",
        "mps",
        "xpu:3",
        "",
        "cpu:",
        "cuda:x",
        "cuda:1x",
        "cuda:1 ",
    ),
    *(":1", "gpu", "gpu:1", "CUDA", "cuda:1:2", "cuda 1", " cpu", "cudacpu", "cpu:0"),
)


def test_names_of_devices_are_read_as_by_regex(tmp_path: Path) -> None:
    (tmp_path / "same.cpp").write_text(SAME, encoding="utf-8")
    program = str(tmp_path / "same")
    folder = str(toolchain.DEVICE_NAMES.parent)
    source = str(tmp_path / "same.cpp")
    subprocess.run(
        [toolchain.compiler(), "-std=c++17", "-I", folder, source, "-o", program], check=True
    )
    subprocess.run([program, *NAMES], check=True)


def test_the_headers_are_those_that_it_is_for() -> None:
    assert toolchain._reads_device_names()
