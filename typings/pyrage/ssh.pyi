class Recipient:
    @staticmethod
    def from_str(text: str) -> Recipient: ...

class Identity:
    @staticmethod
    def from_buffer(data: bytes) -> Identity: ...
