"""Why a log cannot be used, in words: which file, where, and what to do. Knows nothing else."""

SALVAGE_ADVICE = (
    "nothing was changed; `beanfield wal verify` shows more, `beanfield wal salvage` copies what is readable"
)


class LogDamage(Exception):
    """The slot stops. Nothing has been written when this is raised."""

    def __init__(self, file: str, offset: int, fault: str, advice: str = SALVAGE_ADVICE) -> None:
        where = f"{file}, byte {offset}" if offset >= 0 else file
        super().__init__(f"{where}: {fault}; {advice}")
        self.file = file
        self.offset = offset
        self.fault = fault
        self.advice = advice
