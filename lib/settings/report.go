package settings

import "sync"

// Wait reports why a role does not do all its work, though it has called ready; "": it does. No Quiet role calls it.
func (s Session) Wait(reason string) {
	if s.wait != nil {
		s.wait(reason)
	}
}

// A report is the state of a role, as logged and as shown.
type report struct {
	mu     sync.Mutex // guards the fields below
	serves bool       // this call of Serve has called ready
	waits  string     // see Session.Wait
	failed string     // reason of the last failure, as logged; "": it has recovered
}

// began handles a call of ready.
func (p *process) began(r *running) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serves = true
	if !r.Quiet || r.failed != "" {
		p.show(r)
	}
}

// wait is Session.Wait.
func (p *process) wait(r *running, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits == reason {
		return
	}
	if r.waits = reason; r.serves {
		p.show(r)
	}
}

// show shows that a role serves, or what it waits for. The caller holds r.mu.
func (p *process) show(r *running) {
	if r.waits != "" {
		p.status(r, "waiting: "+r.waits)
		return
	}
	if r.failed != "" {
		r.failed = ""
		r.Log.Info("recovered: serving")
	}
	p.status(r, Serving)
}

// ended handles the end of a call of Serve. It reports whether that has called ready.
func (r *report) ended() (served bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	served = r.serves
	r.serves, r.waits = false, ""
	return served
}
