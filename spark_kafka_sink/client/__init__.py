"""Station 4: a cluster to talk to: metadata, connections, versions, requests in flight."""
