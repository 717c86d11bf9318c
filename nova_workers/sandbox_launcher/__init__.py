"""Runs one command inside the walls of a sandbox, on machines without bubblewrap. Linux only.

    python -I -S -c START FOLDER OPTIONS -- COMMAND…

START is a line that adds FOLDER to the path and calls `main.main`. The options are those of bubblewrap that
`nova_workers.shell_sandbox` uses, and a few more (`walls`). Like bubblewrap the launcher makes namespaces, builds a
root of bind mounts in them, and executes the command without capabilities. Beside these walls, or alone where
namespaces are not permitted, stand Landlock, a filter of system calls, another user and limits.

It starts with each command, so it imports nothing of ours but itself, and little of the standard library.
"""
