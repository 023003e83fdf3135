// Copies of host memory, each as the operation of wire/ops.h that it serves.
#pragma once

#include "server/session.h"

namespace umsh {

constexpr int kAnsweredLater = -3;  // a waiting thread replies

bool capturing(Session& s, void* stream);  // is this stream's work becoming part of a graph?
int upload(Session& s, Reader& in);
int download_async(Session& s, Reader& in);
int download(Session& s, Reader& in, uint64_t sequence);
int upload_captured(Session& s, Reader& in);
int refresh_captured(Session& s, Reader& in);  // waits for the device
int mirror_upload(Session& s, Reader& in);
int mirror_download(Session& s, Reader& in, Writer& out);
int mirror_alloc(Session& s, Reader& in);

}  // namespace umsh
