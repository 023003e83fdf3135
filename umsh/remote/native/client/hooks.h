// What hand-written and generated calls share: copies, waits, and telling the session what they did.
#pragma once

#include <cstddef>
#include <cstdint>

namespace umsh {

int upload(uint64_t dst, const void* src, uint64_t nbytes, uint64_t stream);
int download(void* dst, uint64_t src, uint64_t nbytes, uint64_t stream);        // returns with the bytes
// Rows of one width: the first ones' addresses, and how far the next is.
struct Rows {
  char* dst;
  uint64_t dst_pitch;
  uint64_t src, src_pitch;
  uint64_t nbytes, count;
};
int download_rows(const Rows& rows, uint64_t stream);
int download_async(void* dst, uint64_t src, uint64_t nbytes, uint64_t stream);  // does so only for ordinary memory
int copy_any(uint64_t dst, uint64_t src, uint64_t nbytes, uint64_t stream, bool async);

// Returns when no asynchronous download under way overlaps the memory, which is about to be read.
void wait_downloads(const void* from, uint64_t nbytes);

// A real or an elided synchronise of one stream (0: the legacy stream).
int wait_stream(uint64_t stream);

// A real or an elided synchronise of everything.
int wait_all();

// Call before sending work that may use the memory these words point to: mapped memory is made visible to the device.
int before_device_use(const uint64_t* words, size_t count, uint64_t stream);

}  // namespace umsh
