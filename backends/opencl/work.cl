// What the GPU agent does in tests and benchmarks.

static uint umsh_pattern(uint seed, uint index) {
  uint x = index * 0x9E3779B9u + seed;
  x ^= x >> 16;
  x *= 0x7FEB352Du;
  x ^= x >> 15;
  return x;
}

__kernel void umsh_fill(__global uint *words, ulong first, ulong count, uint seed, uint span, int method) {
  for (ulong base = get_global_id(0) * (ulong)span; base < count; base += get_global_size(0) * (ulong)span) {
    ulong end = min(count, base + span);
    for (ulong i = base; i < end; i++) words[first + i] = umsh_pattern(seed, (uint)i);
  }
  atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_all_svm_devices);
}

__kernel void umsh_check(__global const uint *words, ulong first, ulong count, uint seed, uint span, int method,
                         __global atomic_uint *bad) {
  uint wrong = 0;
  atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_all_svm_devices);
  for (ulong base = get_global_id(0) * (ulong)span; base < count; base += get_global_size(0) * (ulong)span) {
    ulong end = min(count, base + span);
    for (ulong i = base; i < end; i++) wrong += words[first + i] != umsh_pattern(seed, (uint)i);
  }
  if (wrong) atomic_fetch_add_explicit(bad, wrong, memory_order_relaxed, memory_scope_all_svm_devices);
}
