// Module images as programs hand them over: a pointer without a length. How long it is, and which part must travel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace umsh {

constexpr size_t kImageMax = size_t{1} << 30;

struct Image {
  const char* data = nullptr;
  size_t nbytes = 0;
  std::vector<char> trimmed;  // holds `data` when the image was made smaller
};

// ELF, PTX text, a fat binary, or the wrapper that the compiler puts around one. A CUresult.
int measure_image(const void* image, Image& out);

// Leaves out a fat binary's code for other architectures than `major`.`minor`. Whatever is not understood stays whole.
void trim_image(Image& image, int major, int minor);

}  // namespace umsh
