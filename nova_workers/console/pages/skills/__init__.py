"""Skills: the library, a skill with its text and files, adding and replacing by text, files or a folder."""

from starlette.routing import Route

from nova_workers.console.navigation import NavEntry, PageModule
from nova_workers.console.pages.skills import library

PAGE = PageModule(
    routes=(
        Route("/skills", library.show_list),
        # No skill's name begins with a tilde.
        Route("/skills/~new", library.show_new, methods=["GET"]),
        Route("/skills/~new", library.create, methods=["POST"]),
        Route("/skills/{skill:id}", library.show, methods=["GET"]),
        Route("/skills/{skill:id}/file", library.show_file),
        Route("/skills/{skill:id}/edit", library.show_edit, methods=["GET"]),
        Route("/skills/{skill:id}/edit", library.replace, methods=["POST"]),
        Route("/skills/{skill:id}/delete", library.delete, methods=["POST"]),
    ),
    nav=(NavEntry("Build", "Skills", "/skills", "skills", scope="workspace:read"),),
)
