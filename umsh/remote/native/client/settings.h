// What the environment says: where the server is, the token, and which techniques are on.
#pragma once

#include <string>

namespace umsh {

// Each technique can be turned off to measure what it brings.
struct Switches {
  bool shadow = true;    // objects are named by the client, so that creating them needs no reply
  bool async = true;     // calls without outputs do not wait
  bool local = true;     // state kept on the client answers queries
  bool prefetch = false; // objects are created in batches ahead of time
  bool elide = true;     // a synchronise with nothing for the host to see does not wait
  bool delta = true;     // launches are sent as differences
};

struct Settings {
  std::string server = "127.0.0.1:7317";
  std::string token;
  std::string mode = "full";
  Switches switches;
  int connect_timeout_s = 10;
  std::string error;  // not empty: a value that is not understood, and what is
};

// UMSH_SERVER, UMSH_TOKEN, UMSH_REMOTE_MODE (naive, sr, dgsf, full), UMSH_REMOTE_SWITCHES (such as "+elide,-delta").
Settings read_settings();

}  // namespace umsh
