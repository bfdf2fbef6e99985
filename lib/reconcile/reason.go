package reconcile

import "regexp"

// localEnd matches the local end of a connection in an error of package net, such as "127.0.0.1:38452->".
var localEnd = regexp.MustCompile(`\S+:\d+->`)

// Reason returns the text of an error without the local ends of connections: each try has another port. Callers compare
// it, to log a reason once and not with each try.
func Reason(err error) string { return localEnd.ReplaceAllString(err.Error(), "") }
