// Stream capture, as far as this end must know of it: host memory in a graph is used at each replay.
#pragma once

#include <cstdint>

namespace umsh {

bool any_capture();               // is a capture of this process under way? Then each copy asks whether it joins it
bool capturing(uint64_t stream);  // asks the server
int upload_captured(uint64_t dst, const void* src, uint64_t nbytes, uint64_t stream);
// Before a graph is launched: sends captured host memory that has changed since.
int refresh_captured();
bool any_captured_upload();

}  // namespace umsh
