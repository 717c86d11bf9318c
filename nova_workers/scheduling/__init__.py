"""What starts by itself: work on tasks, upkeep of what is stored."""
