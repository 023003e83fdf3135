#include "server/writer.h"

#include <sys/uio.h>

#include "wire/socket.h"

namespace umsh {

// A failed write is not acted on here: the reader sees the end of the connection and ends the session.
void FrameWriter::write_locked(const FrameHeader& header, const void* head, size_t head_nbytes, const void* data,
                               size_t data_nbytes) {
  static constexpr char zeros[8] = {};
  iovec parts[] = {{const_cast<FrameHeader*>(&header), sizeof header},
                   {const_cast<void*>(head), head_nbytes},
                   {const_cast<void*>(data), data_nbytes},
                   {const_cast<char*>(zeros), padded(data_nbytes) - data_nbytes}};
  count(stats_->bytes_out, sizeof header + header.nbytes);
  write_all(fd_, parts, 4);
}

void FrameWriter::write(const FrameHeader& header, const void* head, size_t head_nbytes, const void* data, size_t data_nbytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  write_locked(header, head, head_nbytes, data, data_nbytes);
}

ReplyHeader FrameWriter::reply_header(int result) {
  std::lock_guard<std::mutex> lock(deferred_mutex_);
  ReplyHeader header{result, deferred_result_, deferred_sequence_, executed_.load(std::memory_order_relaxed)};
  deferred_result_ = 0;
  deferred_sequence_ = 0;
  return header;
}

void FrameWriter::reply(uint64_t sequence, int result, const Writer& outputs) {
  ReplyHeader head = reply_header(result);
  FrameHeader header{uint32_t(sizeof head + outputs.size()), 0, kIsReply, sequence};
  // Outputs are made of words: nothing is padded after them.
  write(header, &head, sizeof head, outputs.data(), outputs.size());
}

void FrameWriter::reply_blob(uint64_t sequence, const void* data, uint64_t nbytes) {
  struct { ReplyHeader reply; uint64_t nbytes; } head{reply_header(0), nbytes};
  FrameHeader header{uint32_t(sizeof head + padded(nbytes)), 0, kIsReply, sequence};
  write(header, &head, sizeof head, data, nbytes);
}

void FrameWriter::push(Op op, const Writer& payload) {
  write({uint32_t(payload.size()), op, 0, 0}, payload.data(), payload.size(), nullptr, 0);
}

void FrameWriter::host_write(uint64_t cookie, uint64_t offset, bool last, const void* data, uint64_t nbytes) {
  uint64_t head[] = {cookie, offset, last, data ? nbytes : kNullBlob};
  if (!data) nbytes = 0;
  write({uint32_t(sizeof head + padded(nbytes)), kOpHostWrite, 0, 0}, head, sizeof head, data, nbytes);
}

void FrameWriter::ping() {
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) write_locked({0, kOpPing, 0, 0}, nullptr, 0, nullptr, 0);
}

void FrameWriter::failed(uint64_t sequence, int result) {
  std::lock_guard<std::mutex> lock(deferred_mutex_);
  if (deferred_result_) return;
  deferred_result_ = result;
  deferred_sequence_ = sequence;
}

void FrameWriter::acknowledge() {
  Writer payload;
  payload.u64(executed_.load(std::memory_order_relaxed));
  push(kOpAck, payload);
}

}  // namespace umsh
