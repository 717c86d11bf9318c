"""What engines that ask a model over HTTP share: connections, the turn, words of failures."""
