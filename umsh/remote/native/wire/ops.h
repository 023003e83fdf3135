// Operations that are no generated call: session control, host data, modules, launches, host callbacks.
// Generated calls take the numbers from kFirstDriverCall on (generated/ops.h).
#pragma once

#include <cstdint>

namespace umsh {

using Op = uint16_t;

constexpr Op kFirstDriverCall = 0x0100;
constexpr Op kFirstNvmlCall = 0x0800;

// Result of loading a module by its hash when the server has not this content; the client sends it and asks again.
constexpr int kUnknownContent = -2;

// Fields stand in the order of the payload; each is a u64 unless it is called blob. "-> x" is the reply's output.
enum ControlOp : Op {
  kOpOpen = 1,        // window_base, window_nbytes, mirror_base, mirror_nbytes, flags -> blob snapshot (wire/snapshot.h);
                      // first request of a session; refused (801) when the server cannot have this window
  kOpAck = 2,         // server: executed
  kOpPing = 3,        // either end, answered by kOpPong
  kOpPong = 4,
  kOpGoodbye = 5,     // either end: reason (HelloStatus), blob text; the connection closes after it
  kOpContext = 6,     // context: current for the calls that follow (sent when another thread's context differs)

  kOpUpload = 16,         // dst, stream, blob data: host to device; copied before the call returned to the program
  kOpDownload = 17,       // src, nbytes, stream -> blob data: device to pageable memory, blocks in stream order
  kOpDownloadAsync = 18,  // cookie, src, nbytes, stream: the bytes come back by kOpHostWrite when they are ready
  kOpHostWrite = 19,      // server: cookie, offset, last, blob data; precedes the reply of any wait that covers it
  kOpMirrorUpload = 21,   // address, blob data: new content of mirrored host memory, before the next launch
  kOpMirrorDownload = 22, // address, nbytes -> blob data
  kOpMirrorAlloc = 23,    // address, nbytes, managed: device memory at exactly this address of the mirror window
  kOpMirrorFree = 24,     // address
  kOpUploadCaptured = 25,   // cookie, dst, stream, blob data: an upload that becomes part of a graph
  kOpRefreshCaptured = 26,  // cookie, blob data: what the next replay of that upload sends

  kOpModuleData = 33,   // offset, nbytes, blob sha256, blob piece; the server checks the hash when it is complete
  kOpFunctionInfo = 34, // function -> count, then offset, nbytes for each parameter
  kOpLaunch = 35,       // encoded by wire/launch.h

  kOpHostFunction = 40, // stream, token: cuLaunchHostFunc / cuStreamAddCallback
  kOpHostCall = 41,     // server: token, status: the client runs the function, then sends kOpHostCallDone
  kOpHostCallDone = 42, // token
};

}  // namespace umsh
