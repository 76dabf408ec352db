"""What can end a conversion without a package.

Raised by ``registry.convert`` and ``registry.convert.flavours``; ``__main__`` turns each into one
``ConversionFailure``. The difference that matters: is the version at fault (never tried again), or
what surrounds it (tried again later)?
"""


class ConversionError(Exception):
    """The root; ``reason`` is a sentence for the person who registered the version."""

    by_version = False
    needs_export = False

    @property
    def reason(self) -> str:
        """The sentence."""
        return str(self)


class VersionError(ConversionError):
    """The version itself is at fault: trying again would end the same way."""

    by_version = True


class EnvironmentFaultError(ConversionError):
    """Something around the conversion is away or missing: trying again may help."""


class ExportMissingError(EnvironmentFaultError):
    """The version is PyTorch, and torch and transformers are not installed here."""

    needs_export = True
