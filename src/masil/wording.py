"""What many sentences of masil's say, the same in each: numbers in words, and how an extra comes."""


def plural(count: int, what: str) -> str:
    """Give a number of things: '1 class', '2 classes'."""
    return f"{count:,} {what}{'' if count == 1 else 'es' if what.endswith('ss') else 's'}"


def percent(share: float | None) -> str:
    """Give a share as people read it: '93.4 %', or '–' where there is none."""
    return "–" if share is None else f"{100 * share:.1f} %"


def missing_extra(what: str, extra: str) -> str:
    """Say that something needs an extra, and how it comes: from masil's source, because no package index has it."""
    return f"{what} an extra of masil; in the folder of its source: pip install -e '.[{extra}]'"


def duration(seconds: float, digits: int = 0) -> str:
    """Give a time as people say it: '42 s', '3 min 20 s', '1 h 05 min'; below a minute with that many digits."""
    if round(seconds, digits) < 60:
        return f"{seconds:.{digits}f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
