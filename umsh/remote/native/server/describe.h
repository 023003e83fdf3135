// What `umsh-session --describe --backend PATH` prints for umsh-serve: the digest of the call tables, then devices.
#pragma once

#include "generated/driver_table.h"

namespace umsh {

int describe(const char* backend);

}  // namespace umsh
