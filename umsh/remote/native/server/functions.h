// Functions and kernels: layouts of their parameters, launches, content of modules.
#pragma once

#include "server/session.h"

namespace umsh {

constexpr size_t kNameMax = size_t{64} << 10;  // mangled names are long

using Layout = std::vector<std::pair<size_t, size_t>>;  // offset and bytes of each parameter
const Layout& layout_of(Session& s, void* function, bool kernel);
void put_layout(Session& s, void* function, bool kernel, Writer& out);

// Operations of wire/ops.h.
int module_data(Session& s, Reader& in);
int function_info(Session& s, Reader& in, Writer& out);
int launch(Session& s, Reader& in);

}  // namespace umsh
