"""Ranges of offsets of events. Pure functions; the events themselves are in `store`."""

Span = tuple[int, int]


def joined(spans: list[Span]) -> list[Span]:
    """Join adjacent spans, and drop empty ones."""
    found: list[Span] = []
    for first, end in spans:
        if found and found[-1][1] == first:
            found[-1] = (found[-1][0], end)
        elif first < end:
            found.append((first, end))
    return found
