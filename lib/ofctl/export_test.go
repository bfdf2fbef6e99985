package ofctl

// FlushCommand is for tests outside of the host's namespaces.
var FlushCommand = flushUDP
