"""Seeds that once broke a promise, and what was wrong. They are run every time.

A change of `storm` gives a seed another life, so the bugs themselves are also kept as unit tests in
tests/unit/node.
"""

from typing import Final

SEEDS: Final = {
    6: "a wait behind a pipeline of waits",
    9: "a GRANT for a put in flight hid a job that was ready: TIMED_OUT beside it",
    39: "a follower's clock kept what the leader's had lost: TTRs ended early after a failover",
    42: "a batch right behind the election was dropped, and its origin stood still",
    45: "the same clock, seen in a TTR",
    94: "a heartbeat read after a pause was heard at the time before it: TTRs ended early",
    180: "a leader fell before its first heartbeat, and its time was forgotten: TTRs ended early",
    322: "a batch right behind the election was dropped: no put was answered",
    459: "the same: a wait was never served",
    1013: "a clock that was never heard was saved: cluster time stood after the next start",
    3589: "the waiter of a dead incarnation stood in the place of the new one's: never served",
    8: "a member that was away while another one rejoined refused its new disk for good",
    114: "the same, with five nodes; a stop that saw no majority for a moment gave jobs back",
    10241: "a node that was down counted an hour in which the others stood: TTRs ended early",
    10517: "a leader that was behind the log gave less than the grace, and none to the newest",
    11632: "a log whose oldest segment begins with a cut could not be read",
    2080: "the floor of an epoch is no touch",
    47: "what followed an entry of a megabyte was not replaced, and the node ended at each start",
    168: "a node whose disk stands while the majority goes on closes its clients at once",
    402: "two refusals for different reasons made a member an older copy",
    1582: "an incarnation of a lost disk was committed late: the new disk was an older copy",
    1592: "a member that the majority needed waited for room that was there again",
    3816: "a leader that had lost time was not believed by the next: a delay ended early",
    4907: "a disk failed under a program that was too old, which was to say that instead",
    2263: "the same, in a write that was in progress when the disks were mended",
    1828: "a client came between two incarnations, and its session was never opened",
    119: "a snapshot that was overtaken while it was written was removed twice",
    1365: "a node that was down counted time in which the clock stood before its newest entry",
    164: "an epoch began at the time of the newest entry, and its floor spared none of its jobs",
    847: "a frame whose length was falsified swallowed all that followed, and the link stayed",
    2902: "the time-out of a worker stayed with its job, and ended the next worker's reservation",
    131: "a job that was given up on its way arrived after the next worker's: the judge saw two",
    3: "a resume that was given up overtook the next one, which heard that its session was gone",
    115: "a Gearman worker slept on beside a ready job, at a node that stopped",
    138: "a stop did not wait for a worker whose jobs were on their way when it began",
    71: "a leader came back from a pause and fell: what it had lost came back, a TTL ended early",
    2495: "a keeper was away for hours, and its job given to another: the judge saw two owners",
    663: "a node that stops answered a pop without a session: the judge did not know its life",
    197: "a job that came back in the entry that refused to cancel it was said to be none",
    743: "a node that stopped gave no job to one that waited: the judge asked for a reason",
    742: "a node that stopped gave its clients up when it was cut off: its majority was back",
    2216: "a watch was refused after its answer: the judge took that for another one's reply",
    2578: "a node without a leader had old rules for seven seconds: the judge allowed four",
    2970: "a worker said a status in its next turn at a job: the judge asked for one before",
}
