"""Who may do what: tokens, browser sessions, one-time sign-in links, and the declaration that every route makes."""

from .bodies import BodyLimit
from .needs import Needs, needs
from .principal import AccessMode, Principal, Role, author_of, is_name
from .refusing import add_refusal_handlers
from .routes import access_routes
from .schemas import Name
from .service import AccessService, sign_in_link

__all__ = [
    "AccessMode",
    "AccessService",
    "BodyLimit",
    "Name",
    "Needs",
    "Principal",
    "Role",
    "access_routes",
    "add_refusal_handlers",
    "author_of",
    "is_name",
    "needs",
    "sign_in_link",
]
