"""What the ranks of several tests expect."""


def refused(call, *words):
    """That call raises an error with all of these words."""
    try:
        call()
    except (RuntimeError, TypeError, ValueError) as error:
        assert all(word in str(error) for word in words), (words, str(error))
    else:
        raise AssertionError(f"not refused: {words}")
