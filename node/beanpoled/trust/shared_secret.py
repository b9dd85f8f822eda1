"""The present secret of the nodes. Its file may bring another one while a node runs."""


class SharedSecret:
    """Holds the secret for every part that makes or checks a proof.

    Attributes:
        value: its bytes; empty if there is none.
    """

    def __init__(self, value: str) -> None:
        self.value = value.encode()

    def replace(self, value: str) -> None:
        """Use another secret from now on. Established links stay: the old secret proved them."""
        self.value = value.encode()

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return "SharedSecret(...)"
