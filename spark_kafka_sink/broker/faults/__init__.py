"""What a test lets go wrong: errors, delays and cuts of chosen requests, brokers out of reach, full disks, late markers."""
