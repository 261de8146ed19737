"""Every error that a person can meet, in one tree.

An error says what happened and to what (`detail`), and what to do next (`hint`). `code` is stable and is what
programs match on; `status` is the HTTP status under which the API reports it. The command line prints
`detail` and `hint` on one line and exits with 2.
"""

from __future__ import annotations


class AtlasError(Exception):
    """The root: never raised itself."""

    code = "error"
    status = 500

    def __init__(self, detail: str, hint: str = "", **facts: object) -> None:
        """`facts` are further members of the problem document (they must be JSON values)."""
        super().__init__(detail)
        self.detail = detail
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        return f"{self.detail} {self.hint}".strip()


class DeclarationError(AtlasError):
    """A declaration contradicts itself: an unknown axis, an edge to nowhere, a symbol never declared."""

    code = "bad-declaration"


# --- sources


class SourceError(AtlasError):
    """A pinned source cannot be used."""

    code = "source"


class SourceUnavailable(SourceError):
    """No verified copy of the file is on this machine."""

    code = "source-unavailable"
    status = 404


class SourceMismatch(SourceError):
    """A file is there, but it is not the pinned one; `detail` names both hashes."""

    code = "source-mismatch"
    status = 500


class AnchorError(SourceError):
    """An anchor resolves to no expression, or to more than one."""

    code = "anchor"


# --- drawing


class RenderError(AtlasError):
    """An equation, a diagram or a piece of code cannot be drawn."""

    code = "render"


class JavaScriptError(RenderError):
    """A drawing library threw, or took too long."""

    code = "javascript"


class EquationError(RenderError):
    """The TeX of a declaration is wrong; `detail` names it."""

    code = "equation"


# --- what the reader asked for


class NotFound(AtlasError):
    """There is no such model, node, run, layer or step."""

    code = "not-found"
    status = 404


class NotComputed(NotFound):
    """The node exists, but this pass does not compute it; `detail` says why."""

    code = "not-computed"


class NotRecorded(NotFound):
    """A recorded run does not hold this; `detail` says what of it is held."""

    code = "not-recorded"


class BadRequest(AtlasError):
    """The request cannot be understood, or asks for what cannot be."""

    code = "bad-request"
    status = 422


class BundleError(BadRequest):
    """A bundle is cut short, altered, of a newer format, or no bundle at all; `detail` says which."""

    code = "bad-bundle"


class TooLarge(BadRequest):
    """A prompt, a body or an answer is over its limit; `detail` names the limit."""

    code = "too-large"
    status = 413


class TooMany(AtlasError):
    """The queue, or a client's share of something, is full. `retry_after` says when to try again, in seconds."""

    code = "too-many"
    status = 429


class Unauthorized(AtlasError):
    """The server lets in only who gives its token."""

    code = "unauthorized"
    status = 401


class Forbidden(AtlasError):
    """The request is understood, and not for this client to make."""

    code = "forbidden"
    status = 403


class ReadOnly(Forbidden):
    """Recorded runs can be read here, and nothing can be started or removed."""

    code = "read-only"


class OtherOrigin(Forbidden):
    """A page of another site asked for a change."""

    code = "other-origin"


class WrongHost(AtlasError):
    """The request names a host that this server is not."""

    code = "wrong-host"
    status = 421


class Conflict(AtlasError):
    """The request is good, but not now: no checkpoint here, or the run has not finished."""

    code = "conflict"
    status = 409


class NoCheckpoint(Conflict):
    """The model's weights are not on this machine, so it cannot run itself."""

    code = "no-checkpoint"


class NotReady(AtlasError):
    """The engine has not finished starting."""

    code = "not-ready"
    status = 503


class TimedOut(AtlasError):
    """The answer did not begin in the time that it may take."""

    code = "timed-out"
    status = 503


# --- weights and the machine


class CheckpointError(AtlasError):
    """Weights are corrupt, truncated, of another architecture, or do not fit the declaration."""

    code = "checkpoint"


class FetchError(AtlasError):
    """Something that must be downloaded could not be."""

    code = "fetch"
    status = 503


class StorageError(AtlasError):
    """The data directory cannot be read or written (permissions, a full disk)."""

    code = "storage"
    status = 507


class EnvironmentUnfit(AtlasError):
    """This Python, or something that it lacks, cannot run the atlas."""

    code = "environment"


class AssetMissing(EnvironmentUnfit):
    """A browser library was not installed."""

    code = "asset-missing"
