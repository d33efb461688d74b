// The one use that torch's headers for compiled models make of <regex>, without it: to read the name of a
// device, "cuda:1". Instantiating std::regex takes more than half of the time that such a model takes to
// compile. It is included before these headers, where they have exactly this use (toolchain.py).
#pragma once
#include <cstddef>
#include <regex>
#include <string>

namespace std {

class tcbuild_regex {
 public:
  explicit tcbuild_regex(const char*) {}  // (cpu|cuda|xpu|mps)(:([0-9]+))?
};

struct tcbuild_sub_match {
  string text;
  bool matched = false;
  string str() const {
    return text;
  }
};

struct tcbuild_smatch {
  tcbuild_sub_match parts[4];
  const tcbuild_sub_match& operator[](size_t i) const {
    return parts[i];
  }
};

inline bool tcbuild_regex_match(const string& name, tcbuild_smatch& found, const tcbuild_regex&) {
  const size_t colon = name.find(':');
  const string kind = name.substr(0, colon);
  if (kind != "cpu" && kind != "cuda" && kind != "xpu" && kind != "mps") {
    return false;
  }
  found.parts[1].text = kind;
  found.parts[1].matched = true;
  if (colon == string::npos) {
    return true;
  }
  const string number = name.substr(colon + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != string::npos) {
    return false;
  }
  found.parts[2].text = name.substr(colon);
  found.parts[2].matched = true;
  found.parts[3].text = number;
  found.parts[3].matched = true;
  return true;
}

}  // namespace std

#define regex tcbuild_regex
#define smatch tcbuild_smatch
#define regex_match tcbuild_regex_match
