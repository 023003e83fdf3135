#include "settings.h"

#include <cstdlib>

namespace umsh {

namespace {

bool find_mode(const std::string& name, Switches& out) {
  if (name == "full") out = Switches{};
  else if (name == "naive") out = Switches{false, false, false, false, false, false};
  else if (name == "sr") out = Switches{true, true, false, false, false, false};
  else if (name == "dgsf") out = Switches{false, false, true, true, false, false};
  else return false;
  return true;
}

bool* find_switch(Switches& s, const std::string& name) {
  if (name == "shadow") return &s.shadow;
  if (name == "async") return &s.async;
  if (name == "local") return &s.local;
  if (name == "prefetch") return &s.prefetch;
  if (name == "elide") return &s.elide;
  if (name == "delta") return &s.delta;
  return nullptr;
}

// "+name" or "-name", separated by commas.
bool apply_list(const std::string& list, Switches& switches) {
  for (size_t at = 0; at < list.size();) {
    size_t comma = list.find(',', at);
    if (comma == std::string::npos) comma = list.size();
    std::string item = list.substr(at, comma - at);
    at = comma + 1;
    if (item.empty()) continue;
    bool* target = find_switch(switches, item.substr(1));
    if (!target || (item[0] != '+' && item[0] != '-')) return false;
    *target = item[0] == '+';
  }
  return true;
}

std::string variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value && *value ? value : otherwise;
}

}  // namespace

Settings read_settings() {
  Settings s;
  s.server = variable("UMSH_SERVER", s.server);
  s.token = variable("UMSH_TOKEN", "");
  s.mode = variable("UMSH_REMOTE_MODE", s.mode);
  if (!find_mode(s.mode, s.switches))
    s.error = "UMSH_REMOTE_MODE is '" + s.mode + "': it is one of naive, sr, dgsf, full";
  std::string list = variable("UMSH_REMOTE_SWITCHES", "");
  if (!apply_list(list, s.switches))
    s.error = "UMSH_REMOTE_SWITCHES is '" + list + "': it is +name or -name, of shadow, async, local, prefetch, elide, delta";
  return s;
}

}  // namespace umsh
