/* umsh_lock.h: the lock algorithms; included by umsh.h only. */

/* Whether `tag` is a CPU thread that no longer exists. A zombie counts as gone. Threads are looked up in this
 * PID namespace; a reused thread id looks alive, so such a lock times out. */
static inline int umsh_tag_dead_(uint32_t tag) {
    char path[32], stat[256];
    const char *state;
    ssize_t n;
    int fd;
    if (tag == 0 || (tag & UMSH_TAG_GPU)) return 0;
    if (syscall(SYS_tkill, (int)tag, 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%u/stat", tag);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    n = read(fd, stat, sizeof stat - 1);
    close(fd);
    if (n <= 0) return 0;
    stat[n] = 0;
    state = strrchr(stat, ')'); /* "tid (name) S ..."; the name may hold brackets */
    return state && state[1] == ' ' && (state[2] == 'Z' || state[2] == 'X');
}

/* One step of waiting for whoever's tag stands in `word`. UMSH_LOCK_OK: look again. */
static inline int umsh_lock_step_(umsh_backoff *b, const uint32_t *word) {
    int expired = umsh_backoff_step(b);
    if (expired || b->sleep_ns >= UMSH_SLEEP_NS_MAX)
        if (umsh_tag_dead_(umsh_acquire(word))) return UMSH_LOCK_HOLDER_DIED;
    return expired ? UMSH_LOCK_TIMEOUT : UMSH_LOCK_OK;
}

/* Compare-exchange `word` from 0 to `tag`. */
static inline int umsh_lock_word_(uint32_t *word, uint32_t tag, umsh_backoff *b) {
    for (;;) {
        uint32_t old = 0;
        int r;
        if (__atomic_compare_exchange_n(word, &old, tag, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return UMSH_LOCK_OK;
        if (old == tag) return UMSH_LOCK_RELOCK;
        do { /* wait on a load: a failed exchange would take the line from the holder */
            r = umsh_lock_step_(b, word);
            if (r != UMSH_LOCK_OK) return r;
        } while (__atomic_load_n(word, __ATOMIC_RELAXED) != 0);
    }
}

static inline int umsh_lock_cas_(uint32_t *lock, uint32_t tag, int64_t timeout_ns) {
    umsh_backoff b = umsh_backoff_begin(timeout_ns);
    return umsh_lock_word_(&lock[UMSH_LOCK_HOLDER], tag, &b);
}

/* ---- ticket -------------------------------------------------------------------------- */

static inline uint32_t *umsh_ticket_mark_(uint32_t *lock, uint32_t ticket) {
    return &lock[UMSH_LOCK_GONE + ticket % UMSH_LOCK_QUEUE];
}

/* Serve the next ticket whose waiter is still there. A waiter that gives up writes its mark and then looks at
 * SERVING; whoever serves writes SERVING and then looks at the mark: one of the two sees the other, and the
 * exchange lets one of them pass the turn on. The winner clears the mark, and no ticket is handed out for a
 * slot that is not clear, so marks never outlive their lap. At most UMSH_LOCK_QUEUE turns of the loop. */
static inline void umsh_ticket_pass_(uint32_t *lock, uint32_t ticket) {
    while (__atomic_load_n(umsh_ticket_mark_(lock, ticket), __ATOMIC_SEQ_CST) == ((ticket << 1) | 1)) {
        uint32_t expected = ticket;
        if (!__atomic_compare_exchange_n(&lock[UMSH_LOCK_SERVING], &expected, ticket + 1, 0, __ATOMIC_SEQ_CST,
                                         __ATOMIC_SEQ_CST))
            return;
        __atomic_store_n(umsh_ticket_mark_(lock, ticket), 0, __ATOMIC_SEQ_CST);
        ticket++;
    }
}

static inline int umsh_ticket_take_(uint32_t *lock, uint32_t *ticket, umsh_backoff *b) {
    for (;;) {
        uint32_t next = __atomic_load_n(&lock[UMSH_LOCK_NEXT], __ATOMIC_SEQ_CST);
        uint32_t serving = __atomic_load_n(&lock[UMSH_LOCK_SERVING], __ATOMIC_SEQ_CST);
        int r;
        if (next - serving < UMSH_LOCK_QUEUE &&
            __atomic_load_n(umsh_ticket_mark_(lock, next), __ATOMIC_SEQ_CST) == 0) {
            *ticket = next;
            if (__atomic_compare_exchange_n(&lock[UMSH_LOCK_NEXT], &next, next + 1, 0, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST))
                return UMSH_LOCK_OK;
        }
        r = umsh_lock_step_(b, &lock[UMSH_LOCK_HOLDER]);
        if (r != UMSH_LOCK_OK) return r;
    }
}

static inline int umsh_lock_ticket_(uint32_t *lock, uint32_t tag, int64_t timeout_ns) {
    umsh_backoff b = umsh_backoff_begin(timeout_ns);
    uint32_t ticket;
    int r;
    if (__atomic_load_n(&lock[UMSH_LOCK_HOLDER], __ATOMIC_RELAXED) == tag) return UMSH_LOCK_RELOCK;
    r = umsh_ticket_take_(lock, &ticket, &b);
    if (r != UMSH_LOCK_OK) return r;
    while (__atomic_load_n(&lock[UMSH_LOCK_SERVING], __ATOMIC_ACQUIRE) != ticket) {
        r = umsh_lock_step_(&b, &lock[UMSH_LOCK_HOLDER]);
        if (r == UMSH_LOCK_OK) continue;
        __atomic_store_n(umsh_ticket_mark_(lock, ticket), (ticket << 1) | 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&lock[UMSH_LOCK_SERVING], __ATOMIC_SEQ_CST) == ticket)
            umsh_ticket_pass_(lock, ticket);
        return r;
    }
    umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return UMSH_LOCK_OK;
}

static inline void umsh_unlock_ticket_(uint32_t *lock) {
    uint32_t ticket = __atomic_load_n(&lock[UMSH_LOCK_SERVING], __ATOMIC_RELAXED) + 1;
    __atomic_store_n(&lock[UMSH_LOCK_SERVING], ticket, __ATOMIC_SEQ_CST);
    umsh_ticket_pass_(lock, ticket);
}

/* ---- peterson ------------------------------------------------------------------------ */

/* Threads of one side first settle by an exchange that stays on their side; the two winners then run
 * Peterson's algorithm (Information Processing Letters 12(3), 1981). Giving up withdraws the wish, which is
 * always safe. */
static inline int umsh_lock_peterson_(uint32_t *lock, uint32_t tag, int64_t timeout_ns) {
    umsh_backoff b = umsh_backoff_begin(timeout_ns);
    uint32_t other = tag & UMSH_TAG_GPU ? 0 : 1;
    uint32_t *mine = &lock[other ? UMSH_LOCK_CPU_WANTS : UMSH_LOCK_GPU_WANTS];
    uint32_t *side = &lock[other ? UMSH_LOCK_CPU_SIDE : UMSH_LOCK_GPU_SIDE];
    uint32_t *theirs = &lock[other ? UMSH_LOCK_GPU_WANTS : UMSH_LOCK_CPU_WANTS];
    int r = umsh_lock_word_(side, tag, &b);
    if (r != UMSH_LOCK_OK) return r;
    __atomic_store_n(mine, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&lock[UMSH_LOCK_TURN], other, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(theirs, __ATOMIC_SEQ_CST) &&
           __atomic_load_n(&lock[UMSH_LOCK_TURN], __ATOMIC_SEQ_CST) == other) {
        r = umsh_lock_step_(&b, &lock[UMSH_LOCK_HOLDER]);
        if (r == UMSH_LOCK_OK) continue;
        __atomic_store_n(mine, 0, __ATOMIC_SEQ_CST);
        umsh_release(side, 0);
        return r;
    }
    umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return UMSH_LOCK_OK;
}

static inline void umsh_unlock_peterson_(uint32_t *lock, uint32_t tag) {
    int gpu = (tag & UMSH_TAG_GPU) != 0;
    umsh_release(&lock[gpu ? UMSH_LOCK_GPU_WANTS : UMSH_LOCK_CPU_WANTS], 0);
    umsh_release(&lock[gpu ? UMSH_LOCK_GPU_SIDE : UMSH_LOCK_CPU_SIDE], 0);
}

/* ---- delegated ----------------------------------------------------------------------- */

/* CPU threads settle by an exchange on their own word. The GPU never touches it: it asks, and a thread in
 * umsh_delegate_serve settles with the others for it. */
static inline int umsh_lock_delegated_(uint32_t *lock, uint32_t tag, int64_t timeout_ns) {
    umsh_backoff b = umsh_backoff_begin(timeout_ns);
    int r = tag & UMSH_TAG_GPU ? UMSH_LOCK_UNKNOWN : umsh_lock_word_(&lock[UMSH_LOCK_CPU_SIDE], tag, &b);
    if (r == UMSH_LOCK_OK) umsh_release(&lock[UMSH_LOCK_HOLDER], tag);
    return r;
}
