"""Limits and defaults that several packages share, each with its reason.

A limit that only one package needs lives in that package.
"""

from typing import Final

SECOND_US: Final = 1_000_000

# An event stores its protocol and its reason in one byte each.
U8_MAX: Final = 2**8 - 1
# An event stores the number of its host in two bytes.
U16_MAX: Final = 2**16 - 1
# The beanstalk protocol's integers for priority, delay and TTR are unsigned 32 bit.
U32_MAX: Final = 2**32 - 1
# A job id shares one integer with the priority in the order of ready jobs (see `core.jobs.job`),
# and JavaScript clients read it as a double, which is exact up to 2**53.
JOB_ID_MAX: Final = 2**53 - 1

# The default of beanstalkd, which its clients assume.
JOB_SIZE_DEFAULT_BYTES: Final = 65_535
# A body must fit into one batch together with the other commands that its client pipelined.
JOB_SIZE_MAX_BYTES: Final = 2 * 1024 * 1024

# A batch is applied in one step of the machine: at 4 MiB such a step takes milliseconds.
BATCH_MAX_BYTES: Final = 4 * 1024 * 1024
# The leader stops joining batches into one entry at this size, so that an entry never delays the
# heartbeat behind it. A single larger batch travels alone.
ENTRY_JOIN_BYTES: Final = 1024 * 1024
# A batch is also bounded in commands, which bounds the time of one apply on every node.
BATCH_COMMANDS_MAX: Final = 4096

# The transitions of one entry beyond its commands: timers, dead sessions and the like. At 2 us each
# this is 2 ms, far below the shortest election timeout.
TRANSITIONS_PER_ENTRY_MAX: Final = 1000
# A kick moves at most this many jobs per command; the origin repeats it up to the client's bound.
KICK_MAX: Final = 1000
# The jobs moved by all kicks of one entry: 7 ms. Each kick takes at most half of the remainder, so
# that the first one gets its KICK_MAX and a kick behind others always gets a share.
KICKS_PER_ENTRY_MAX: Final = 2 * KICK_MAX
# Watched tubes that the GRANTs of one entry examine: 2 ms, and 64 GRANTs with the longest lists.
LOOKS_PER_ENTRY_MAX: Final = 65_536
# A put into a full queue that drops its oldest jobs always drops one, which doubles its cost. The
# entry bounds the work beyond that: 8 ms of comparing ranks and dropping.
DROPS_PER_ENTRY_MAX: Final = 4096
# The leader stops joining batches at this number of commands: 20 ms of apply on every node.
ENTRY_COMMANDS_MAX: Final = 8192
# Each grant examines the watched tubes one by one.
WATCHED_TUBES_MAX: Final = 1024
# The longest tube name of the beanstalk protocol.
TUBE_NAME_MAX_BYTES: Final = 200
# The longest queue name of any protocol: 512 bytes, as libgearman allows, and the prefix of its
# space.
QUEUE_NAME_MAX_BYTES: Final = 513
# The id of a job in another system: room for a queue name and the 64 bytes by which Gearman
# distinguishes jobs.
EXTERNAL_ID_MAX_BYTES: Final = 640
# A result, its job's body and their header form one chunk of an image.
RESULT_MAX_BYTES: Final = 1024 * 1024
# The progress of a job: two numbers as text, with room to spare.
PROGRESS_MAX_BYTES: Final = 64
# Protocol-specific data of a job: the name of a Gearman function.
EXTRA_MAX_BYTES: Final = 512
# Clients attached to one job: its end detaches all of them in one step, 10 ms.
CLIENTS_OF_JOB_MAX: Final = 16_384
# Times that one connection of Gearman waits for one job: each is sent its own copy of every piece
# of data, so that a byte of a worker becomes this many packets. Real clients merge a few.
SUBMITS_OF_JOB_MAX: Final = 64
# Jobs that one session is attached to: the number that its node listens to for one client.
ATTACHED_MAX: Final = 65_536
# The TTR of a reservation by a session without leases, for a job whose own protocol leases it until
# the session ends: without a TTR nothing would return the job.
NOBODYS_TTR_US: Final = 60 * SECOND_US
# The longest delay and TTR: clients of beanstalk give both as 32 bits of seconds.
DURATION_MAX_US: Final = U32_MAX * SECOND_US
# The longest TTL, the same.
TTL_MAX_US: Final = DURATION_MAX_US

# A deduplication key: room for a UUID or a digest in hexadecimal digits.
DEDUP_KEY_MAX_BYTES: Final = 64
# The most keys that are remembered, in some 200 MB, and the least time by cluster time that they
# are remembered: Spark repeats a failed job within a day.
DEDUP_KEYS_MAX: Final = 1_000_000
DEDUP_WINDOW_US: Final = 24 * 3600 * SECOND_US

# The message of one NOTIFY: every listener on every node buffers it for output, so the limit is the
# default size of a body.
NOTIFY_MAX_BYTES: Final = JOB_SIZE_DEFAULT_BYTES
# The limit since machine version 4, that of a result: Gearman's workers send results in parts.
NOTIFY_MAX_BYTES_SINCE_4: Final = RESULT_MAX_BYTES

# A client's host: the longest IPv6 address has 45 characters, and 16 more with its zone.
HOST_NAME_MAX_BYTES: Final = 64
# Numbered hosts, in some 12 MB at most: the range of the host field in a record of an event.
HOSTS_MAX: Final = U16_MAX

# Priorities below this are "urgent" in beanstalkd's statistics.
URGENT_BELOW: Final = 1024
# The priority that clients of beanstalkd give where none is asked for.
PRIORITY_DEFAULT: Final = 2**16
DEFAULT_TUBE: Final = b"default"

# Cluster-wide default limits of the machine. The leader's configuration sets them; the limit in
# bytes follows the leader's memory.
JOBS_MAX_DEFAULT: Final = 50_000_000
TUBES_MAX_DEFAULT: Final = 100_000
SESSIONS_MAX_DEFAULT: Final = 200_000
QUEUE_BYTES_MAX_DEFAULT: Final = 16 * 1024**3
