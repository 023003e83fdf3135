// Functions and kernels: found by name, with the layout of their parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "call.h"

namespace umsh {

struct Parameter {
  uint32_t offset, nbytes;
};

// Parameters of a function and the bytes that they take together.
struct Layout {
  std::vector<Parameter> parameters;
  uint32_t nbytes = 0;
};

// Looks a name up, once for each owner and name; its layout is asked for in the same round trip. A CUresult.
int find_function(Op op, Kind kind, Kind owner_kind, void* owner, const char* name, void** out);

// An object that belongs to another (a kernel's function, a library's module): made once, then known.
int derived(Op op, Kind kind, Kind owner_kind, void* owner, void** out);

// Layout of a function or kernel; null with the error.
const Layout* layout_of(const void* function, int& error);

// Packs parameters, given one by one or as a buffer (`extra`), into layout.nbytes bytes. A CUresult.
int pack_parameters(const Layout& layout, void** parameters, void** extra, char* out);

}  // namespace umsh
