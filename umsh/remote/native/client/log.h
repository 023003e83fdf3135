// One line on stderr for what a program's user must know; never more than once for the same thing.
#pragma once

#include <string>

namespace umsh {

void say(const std::string& line);
void say_once(const std::string& line);
// "umsh: cuX is not supported ...", once for each name.
void say_unsupported(const char* name);

}  // namespace umsh
