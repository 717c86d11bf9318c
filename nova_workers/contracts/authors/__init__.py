"""What an author needs to write the fields of documents that steer agents."""
