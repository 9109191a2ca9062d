"""The entry point of torch.distributed.backends: torch calls it when a process group "tutti" is asked for."""


def register() -> None:
    import tutti_torch  # noqa: F401 # pylint: disable=unused-import # which registers it
