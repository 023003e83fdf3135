"""The terms that the `umsh` policy adds to Algorithm 1, with their constants."""

from __future__ import annotations

from dataclasses import dataclass

# A request is overdue when it waited this many times what it takes alone (and at least `guard_s`).
GUARD_ALONE = 3.0
# Beyond this many loads on a link that is full, one more is not considered.
LINK_SHARERS_MAX = 16
# Weights that were used this long ago are half as dear to evict.
REUSE_HALF_S = 60.0


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms that `umsh` adds to Algorithm 1, each of which an ablation can switch off.

    `guard_s`: after this wait a request goes first and what it needs is kept free (infinite: no guard).
    `share`: a GPU may pass occupancy 1 where the predicted total time is less than by waiting (else
    equation 6). `share_link`: the same for two loads on a link. `aging`: a wait is expected to last at
    least as long as it has. `weigh`: load only where that beats waiting for a server with the weights.
    `short_first`: loads in order of seconds a waiting request, not of memory. `loads_only`: the link
    constraint counts loads, not the small traffic of inferences. `keep`: evicting weights has a price.
    """

    guard_s: float = 60.0
    share: bool = True
    share_link: bool = True
    aging: bool = True
    weigh: bool = True
    short_first: bool = True
    loads_only: bool = True
    keep: bool = True
