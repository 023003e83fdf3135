"""Types of the compiled module; addresses are plain integers. A test compares this file with the headers."""

from typing import Any

class _Lib:
    UMSH_LINE_BYTES: int
    UMSH_FLAG_BYTES: int
    UMSH_WAIT_REACHED: int
    UMSH_WAIT_TIMEOUT: int
    UMSH_LOCK_BYTES: int
    UMSH_LOCK_CAS: int
    UMSH_LOCK_TICKET: int
    UMSH_LOCK_PETERSON: int
    UMSH_LOCK_DELEGATED: int
    UMSH_LOCK_HOLDER: int
    UMSH_LOCK_NEXT: int
    UMSH_LOCK_SERVING: int
    UMSH_LOCK_GONE: int
    UMSH_LOCK_QUEUE: int
    UMSH_LOCK_CPU_WANTS: int
    UMSH_LOCK_CPU_SIDE: int
    UMSH_LOCK_GPU_WANTS: int
    UMSH_LOCK_GPU_SIDE: int
    UMSH_LOCK_TURN: int
    UMSH_LOCK_GRANT: int
    UMSH_LOCK_OK: int
    UMSH_LOCK_TIMEOUT: int
    UMSH_LOCK_HOLDER_DIED: int
    UMSH_LOCK_RELOCK: int
    UMSH_LOCK_NOT_HOLDER: int
    UMSH_LOCK_UNKNOWN: int
    UMSH_TAG_GPU: int
    UMSH_PAGES_4K: int
    UMSH_PAGES_THP: int
    UMSH_PAGES_HUGETLB: int
    UMSH_VERIFIED_NOT: int
    UMSH_VERIFIED_PAGEMAP_SCAN: int
    UMSH_VERIFIED_SMAPS: int
    UMSH_FILE_SHORT: int
    UMSH_FILE_CHANGED: int
    UMSH_WRITE_ALONE: int
    UMSH_WRITE_FLUSH: int
    UMSH_WRITE_BYPASS: int
    UMSH_READ_ALONE: int
    UMSH_READ_INVALIDATE: int
    UMSH_STEP_STORE: int
    UMSH_STEP_LOAD: int
    UMSH_STEP_FENCE: int
    UMSH_STEP_WRITE: int
    UMSH_STEP_READ: int
    UMSH_STEP_FILL: int
    UMSH_STEP_CHECK: int
    UMSH_STEP_ADD: int
    UMSH_STEP_EXCHANGE: int
    UMSH_STEP_CAS: int
    UMSH_STEP_WAIT: int
    UMSH_STEP_POLL: int
    UMSH_STEP_LOCK: int
    UMSH_STEP_UNLOCK: int
    UMSH_STEP_INCREMENT: int
    UMSH_STEP_WARM: int
    UMSH_STEP_TRAFFIC: int
    UMSH_STEP_RENDEZVOUS: int
    UMSH_STEP_DELAY: int
    UMSH_ORDER_PLAIN: int
    UMSH_ORDER_RELAXED: int
    UMSH_ORDER_ACQUIRE: int
    UMSH_ORDER_RELEASE: int
    UMSH_ORDER_ACQ_REL: int
    UMSH_ORDER_SEQ_CST: int
    UMSH_ORDER_SPLIT: int
    UMSH_WIDTH_32: int
    UMSH_WIDTH_64: int
    UMSH_WIDTH_16_PAIR: int
    UMSH_METHOD_WA: int
    UMSH_METHOD_WF: int
    UMSH_METHOD_WBP: int
    UMSH_METHOD_RA: int
    UMSH_METHOD_RI: int
    UMSH_METHOD_RB: int
    UMSH_STEP_TEST_THEN_SET: int
    UMSH_SET_STEPS: int
    UMSH_SET_REGISTERS: int
    UMSH_SET_SLOTS: int
    UMSH_SET_WORDS_SLOT: int
    UMSH_SET_CONTROL_SLOT: int
    UMSH_SET_BASE: int
    UMSH_SET_SEED: int
    UMSH_SET_SPINS: int
    UMSH_SET_GRACE: int
    UMSH_SET_SCRATCH: int
    UMSH_SET_SCRATCH_LINES: int
    UMSH_SET_PACE: int
    UMSH_SET_COUNT: int
    UMSH_EPOCH: int
    UMSH_IN_CONTROL: int
    UMSH_LINE: int
    UMSH_CONTROL_ARRIVED: int
    UMSH_CONTROL_DONE: int
    UMSH_CONTROL_STOP: int
    UMSH_CONTROL_NOISE: int
    UMSH_CONTROL_HEADER: int

    def umsh_load_acquire(self, p: int, /) -> int: ...
    def umsh_store_release(self, p: int, v: int, /) -> None: ...
    def umsh_exchange(self, p: int, v: int, /) -> int: ...
    def umsh_compare_exchange(self, p: int, expected: int, desired: int, /) -> int: ...
    def umsh_fetch_add(self, p: int, v: int, /) -> int: ...
    def umsh_load_acquire64(self, p: int, /) -> int: ...
    def umsh_store_release64(self, p: int, v: int, /) -> None: ...
    def umsh_exchange64(self, p: int, v: int, /) -> int: ...
    def umsh_compare_exchange64(self, p: int, expected: int, desired: int, /) -> int: ...
    def umsh_fetch_add64(self, p: int, v: int, /) -> int: ...
    def umsh_fence(self) -> None: ...
    def umsh_flag_wait(self, flag: int, value: int, timeout_ns: int, /) -> int: ...
    def umsh_flag_set(self, flag: int, value: int, /) -> None: ...
    def umsh_lock_acquire(self, lock: int, algorithm: int, tag: int, timeout_ns: int, /) -> int: ...
    def umsh_lock_release(self, lock: int, algorithm: int, tag: int, /) -> int: ...
    def umsh_own_tag(self) -> int: ...
    def umsh_delegate_serve(
        self, locks: int, count: int, stride: int, stop: int, timeout_ns: int, /
    ) -> int: ...
    def umsh_event_new(self) -> int: ...
    def umsh_event_drop(self, event: int, /) -> None: ...
    def umsh_event_wait(self, event: int, timeout_ns: int, /) -> int: ...
    def umsh_event_status(self, event: int, /) -> int: ...
    def umsh_event_callback(self) -> int: ...
    def umsh_cache_describe(self, out: Any, /) -> None: ...
    def umsh_writeback_lines(self, p: int, n: int, /) -> None: ...
    def umsh_invalidate_lines(self, p: int, n: int, /) -> None: ...
    def umsh_copy_bypass(self, dst: int, src: int, n: int, /) -> None: ...
    def umsh_copy(self, dst: int, src: int, n: int, /) -> None: ...
    def umsh_pages_huge_bytes(self) -> int: ...
    def umsh_pages_map(self, nbytes: int, kind: int, prefault: int, out: Any, /) -> int: ...
    def umsh_pages_map_shared(self, nbytes: int, fd: Any, kind: int, out: Any, /) -> int: ...
    def umsh_pages_attach(self, fd: int, nbytes: int, kind: int, out: Any, /) -> int: ...
    def umsh_pages_verify(self, mapping: Any, /) -> int: ...
    def umsh_pages_verify_smaps(self, mapping: Any, /) -> int: ...
    def umsh_pages_collapse(self, mapping: Any, timeout_ns: int, /) -> int: ...
    def umsh_pages_unmap(self, mapping: Any, /) -> int: ...
    def umsh_file_read(self, fd: int, offset: int, dst: int, n: int, report: Any, /) -> int: ...
    def umsh_file_resident(self, fd: int, offset: int, n: int, /) -> int: ...
    def umsh_pattern_word(self, seed: int, i: int, /) -> int: ...
    def umsh_fill(self, p: int, nbytes: int, seed: int, method: int, /) -> None: ...
    def umsh_check(self, p: int, nbytes: int, seed: int, method: int, /) -> int: ...
    def umsh_gather(self, p: int, nbytes: int, count: int, seed: int, stride: int, method: int, /) -> int: ...
    def umsh_echo(self, words: int, rounds: int, first: int, timeout_ns: int, /) -> int: ...
    def umsh_echo_bare(self, words: int, rounds: int, first: int, timeout_ns: int, /) -> int: ...
    def umsh_lock_rounds(
        self, lock: int, counter: int, rounds: int, algorithm: int, tag: int, timeout_ns: int, /
    ) -> int: ...
    def umsh_lock_rounds_bare(self, word: int, counter: int, rounds: int, /) -> int: ...
    def umsh_poll_answer(self, words: int, rounds: int, pollers: int, timeout_ns: int, /) -> int: ...
    def umsh_region_describe(
        self, out: Any, cpu: int, device: int, nbytes: int, write_method: int, read_method: int, /
    ) -> None: ...
    def umsh_steps(
        self,
        program: int,
        words: int,
        registers: int,
        control: int,
        role: int,
        instances: int,
        settings: int,
        /,
    ) -> int: ...
    UMSH_MODEL_MEMORIES: int
    UMSH_MODEL_JOBS: int
    UMSH_MODEL_STALE: int
    UMSH_MODEL_REORDER: int
    UMSH_MODEL_TORN: int
    UMSH_MODEL_LOST: int
    UMSH_MODEL_NONATOMIC: int
    UMSH_MODEL_SKIPS: int
    UMSH_MODEL_LIES: int
    UMSH_MODEL_HIT: int
    UMSH_MODEL_MISS: int
    UMSH_MODEL_SNOOP: int
    UMSH_MODEL_UNCACHED: int
    UMSH_MODEL_STORE: int
    UMSH_MODEL_FENCE: int
    UMSH_MODEL_MODIFY: int
    UMSH_MODEL_FLUSH: int
    UMSH_MODEL_PAUSE: int
    UMSH_MODEL_TURN: int
    UMSH_MODEL_POLL: int
    UMSH_MODEL_IDLE: int
    UMSH_MODEL_BYTE: int
    UMSH_MODEL_COSTS: int
    def umsh_model_settle(self, world: Any, agent: int, /) -> None: ...
    def umsh_model_fill(
        self, world: Any, agent: int, at: int, nbytes: int, seed: int, method: int, every: int, held: int, /
    ) -> None: ...
    def umsh_model_check(
        self, world: Any, agent: int, at: int, nbytes: int, seed: int, method: int, every: int, /
    ) -> int: ...
    def umsh_model_gather(
        self, world: Any, agent: int, count: int, seed: int, stride: int, method: int, /
    ) -> int: ...
    def umsh_model_play(
        self, world: Any, jobs: Any, count: int, wanted: int, deadline_ns: int, events_max: int, /
    ) -> int: ...

lib: _Lib
ffi: Any
