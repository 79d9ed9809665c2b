"""scikit-learn's conventions without scikit-learn: parameters by name, `clone`, pipelines."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from dataclasses import Field, fields
from typing import Any, Self

from masil.errors import InputError, MasilError, suggest


class NotFittedError(MasilError, ValueError, AttributeError):
    """Something was asked of a learner that has not had its base session yet."""


class Estimator(ABC):
    """A dataclass whose fields are its parameters, which nothing looks at before `fit`."""

    @abstractmethod
    def __sklearn_is_fitted__(self) -> bool:
        """Say whether there has been a base session."""

    @classmethod
    def _parameters(cls) -> dict[str, Field[Any]]:
        return {field.name: field for field in fields(cls) if field.init}  # type: ignore[arg-type]  # a dataclass

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Give every parameter by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; what has been learnt stays as it is until the next `fit`."""
        known = self._parameters()
        for name, value in params.items():
            if name not in known:
                raise InputError(f"{type(self).__name__} has no parameter '{name}'; {suggest(name, known)}")
            setattr(self, name, value)
        return self

    def changed(self) -> list[str]:
        """Name the parameters that are not at their defaults."""
        defaults = {name: parameter.default for name, parameter in self._parameters().items()}
        return [
            name
            for name, value in self.get_params().items()
            if value is not defaults[name] and not (isinstance(value, str | int | float) and value == defaults[name])
        ]

    def __sklearn_tags__(self) -> Any:
        """Describe a classifier of non-negative input; only scikit-learn asks, so it is there to be imported."""
        tags = importlib.import_module("sklearn.utils")
        return tags.Tags(
            estimator_type="classifier",
            target_tags=tags.TargetTags(required=True),
            classifier_tags=tags.ClassifierTags(),
            input_tags=tags.InputTags(positive_only=True),
        )

    def __repr__(self) -> str:
        values = {name: getattr(self, name) for name in self.changed()}
        shown = [f"{name}={value!r}" for name, value in values.items() if isinstance(value, str | int | float | None)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} has learnt nothing yet; call `fit` with the base session first, or `load`."
            )
