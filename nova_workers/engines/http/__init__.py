"""What engines that ask a model over HTTP share: their base, connections, words of failures, trials and rehearsals."""
