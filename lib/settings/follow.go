package settings

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/reconcile"
)

// A Role is a part of a process that serves with the settings of the process, such as the watcher.
type Role struct {
	Log    *logrus.Entry
	Reader config.Reader // of the settings whose changes make it serve again
	// Part is its name among the States of a process with other roles; "": that of Reader.
	Part string
	// NeedsSwitch: it cannot serve without a local Open vSwitch.
	NeedsSwitch bool
	// Check returns an error about missing settings, or an invalid kubeconfig; nil: none.
	Check func(config.Config) error
	// Accept returns an error if the role, as it serves now, cannot go on with other settings: the former ones stay, but for
	// the API server and the credentials for it, of which it must not judge. ErrUndecided: settings that were refused stay so,
	// others are used. nil: none.
	Accept func(config.Config) error
	// Serve serves with one configuration until ctx ends, or returns ErrChanged to be called again. It calls ready
	// once it serves, possibly several times.
	Serve func(ctx context.Context, s Session, ready func()) error
	// Fatal reports the errors of Serve that end the process at any time; nil: none.
	Fatal func(error) bool
	// Quiet: that it serves is nothing to report, unless it could not before.
	Quiet bool
	// Beside runs beside Serve, whatever the settings, until ctx ends; nil: nothing.
	Beside func(ctx context.Context, sw *vswitch.Switch)
}

// A Session are the settings and connections of a process, for a Role.
type Session struct {
	Config config.Config
	// Token returns the present token of the API server; nil if there is no setting with it. It is valid for as long as the
	// process. A token that comes with the address of another server is not for this one, for which the former one stays.
	Token  func() string
	Switch *vswitch.Switch // nil: none
	wait   func(reason string)
}

// A Follower runs the roles of a process with its present settings. A role is run again with new ones when a setting that
// it reads changes, in external_ids of the local Open vSwitch or in the configuration file.
type Follower struct {
	// Switch has external_ids; nil: none.
	Switch *vswitch.Switch
	// File is the configuration file; "": none.
	File string
	// Load returns the present settings, or an error if the roles cannot serve with them. Then those of the API server are
	// used nevertheless if they are valid: see config.Config.HasAPIServer.
	Load  func(context.Context) (config.Config, error)
	Roles []Role
	// Reload has a value when Load may have another result, beside changes of external_ids and files; nil: never.
	Reload <-chan struct{}
	// States are those of the roles. They may be nil.
	States *States
}

// Wrong marks a permanent error: waiting does not help. As an error of Serve it ends a process with a role that has not
// served yet. After other errors, Serve is called again until it succeeds.
func Wrong(err error) error { return &wrong{err} }

// IsWrong reports whether err is marked by Wrong.
func IsWrong(err error) bool { return errors.As(err, new(*wrong)) }

type wrong struct{ error }

func (w *wrong) Unwrap() error { return w.error }

var (
	// ErrChanged is the reason to call Serve again.
	ErrChanged = errors.New("the configuration changed")
	// ErrUndecided is the error of Accept if the role cannot judge now, such as without a connection.
	ErrUndecided = errors.New("the role cannot judge the settings now")
)

const (
	// fileInterval is the time between two looks at files. A new text is used once two looks in a row have found it, since
	// editors may write it in parts.
	fileInterval = 2 * time.Second
	// retryInterval is the time between attempts.
	retryInterval = time.Second
	// wrongInterval bounds it for permanent errors of a role that has served: an attempt may read a whole database.
	wrongInterval = 30 * time.Second
)

// A process is a Follower that runs.
type process struct {
	Follower
	log        *logrus.Entry
	idsChanged chan struct{} // external_ids
	renewed    chan struct{} // the token

	mu      sync.Mutex // guards the fields below
	config  config.Config
	tokens  map[string]*atomic.Value // the last one for each API server so far
	file    string                   // text of File for config
	seen    string                   // text of File at the last look
	seenCA  string                   // authorities at the last look: also those of a kubeconfig
	waiting bool                     // to load the settings again when File has one text for two looks
	problem string                   // why newer settings are not used, as logged
	refusal *refusal                 // nil: none
	running []*running
}

// A running is a role of a process.
type running struct {
	Role
	reconfigured chan struct{}           // its settings have changed
	restart      context.CancelCauseFunc // ends the call of Serve
	ca           string                  // authorities for that call

	report
}

// Run serves until ctx ends. It returns invalid settings at the start, and permanent errors (Wrong). For other errors of
// a role Run reports the reason once and tries again. It calls ready when each role serves or has a reported reason for
// waiting. Once loaded, it keeps the former settings while new ones are invalid.
func (f Follower) Run(ctx context.Context, ready func()) error {
	p := &process{
		Follower: f, log: f.Roles[0].Log, idsChanged: make(chan struct{}, 1), renewed: make(chan struct{}, 1), tokens: map[string]*atomic.Value{},
	}
	if f.Switch != nil {
		f.Switch.OnExternalIDs(func(map[string]string) { poke(p.idsChanged) })
	}
	p.file = read(f.File)
	p.seen = p.file
	var err error
	if p.config, err = f.Load(ctx); err != nil {
		return err
	}
	p.warn(nil)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	waiting, ended := atomic.Int32{}, make(chan error, len(f.Roles))
	waiting.Store(int32(len(f.Roles)))
	var wg sync.WaitGroup
	for _, role := range f.Roles {
		if part := p.part(role); part != "" && !role.Quiet {
			p.States.Start(part)
		}
		p.running = append(p.running, &running{Role: role, reconfigured: make(chan struct{}, 1), restart: func(error) {}})
	}
	for _, r := range p.running {
		began := sync.OnceFunc(func() {
			if waiting.Add(-1) == 0 {
				ready()
			}
		})
		wg.Go(func() { ended <- p.run(ctx, r, began) })
		if r.Beside != nil {
			wg.Go(func() { r.Beside(ctx, f.Switch) })
		}
	}
	wg.Go(func() { p.follow(ctx) })
	wg.Go(func() {
		FollowToken(ctx, func() (Token, bool) { return ReadToken(p.present()) }, p.renewed, func(text string) { p.log.Warn(text) })
	})
	err = <-ended
	cancel()
	wg.Wait()
	return err
}

// poke sends to a channel with room for one value, unless there is one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run serves a role until ctx or the role ends.
func (p *process) run(ctx context.Context, r *running, ready func()) error {
	served := false
	for wait := retryInterval; ; {
		err := p.serve(ctx, r, func() {
			ready()
			p.began(r)
		})
		served = r.ended() || served
		switch {
		case errors.Is(err, ErrChanged):
			r.Log.Infof("%v: starting anew", err)
			continue
		case err == nil || ctx.Err() != nil || r.ends(err, served):
			return err
		}
		if reason := reconcile.Reason(err); r.failed != reason {
			r.failed = reason
			what := "waiting: "
			if served {
				what = "trying again: "
			}
			r.Log.Warn(what + err.Error())
			p.status(r, what+err.Error())
		}
		ready() // it has started, and reports the reason for waiting
		if !IsWrong(err) {
			wait = retryInterval
		}
		p.await(ctx, r, wait)
		if ctx.Err() != nil {
			return nil
		}
		if served {
			wait = min(2*wait, wrongInterval)
		}
	}
}

// await waits for other settings of a role, or for a time. Meanwhile files that settings name may appear.
func (p *process) await(ctx context.Context, r *running, wait time.Duration) {
	for end := time.Now().Add(wait); time.Now().Before(end); {
		select {
		case <-r.reconfigured:
			return
		case <-time.After(retryInterval):
			p.reload(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// serve runs Serve of a role with the present configuration until a change of it.
func (p *process) serve(ctx context.Context, r *running, ready func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := r.Serve(ctx, p.session(r, cancel), ready)
	switch {
	case context.Cause(ctx) == ErrChanged:
		return ErrChanged
	case errors.Is(err, context.Canceled):
		return nil
	}
	return err
}

// session returns the present settings for a role, to be restarted when they change.
func (p *process) session(r *running, restart context.CancelCauseFunc) Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.restart, r.ca = restart, authorities(p.config)
	s := Session{Config: p.config, Switch: p.Switch, wait: func(reason string) { p.wait(r, reason) }}
	if token := p.token(); p.config.APIToken != "" {
		s.Token = func() string { return token.Load().(string) }
	}
	return s
}

// token stores the present token for the present API server. All sessions with that server have the same place, because the
// informers that they share outlive a session. The caller holds mu.
func (p *process) token() *atomic.Value {
	server := p.config.APIServer
	if p.tokens[server] == nil {
		p.tokens[server] = &atomic.Value{}
	}
	p.tokens[server].Store(p.config.APIToken.Reveal())
	return p.tokens[server]
}

func (p *process) present() config.Config {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.config
}

// ends reports whether an error of Serve ends the process.
func (r *running) ends(err error, served bool) bool {
	return !served && IsWrong(err) || r.Fatal != nil && r.Fatal(err)
}

func (p *process) status(r *running, text string) { p.States.Set(p.part(r.Role), text) }

// part returns the name of a role among the States; "": it is the only one.
func (p *process) part(r Role) string {
	if len(p.Roles) == 1 {
		return ""
	}
	return cmp.Or(r.Part, string(r.Reader))
}

// follow uses changed settings until ctx ends.
func (p *process) follow(ctx context.Context) {
	tick := time.NewTicker(fileInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.idsChanged:
			p.reload(ctx)
		case <-p.Reload:
			p.reload(ctx)
		case <-tick.C:
			p.checkFiles(ctx)
		}
	}
}

// checkFiles uses new texts of files found twice in a row.
func (p *process) checkFiles(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, beforeCA := p.seen, p.seenCA
	p.seen, p.seenCA = read(p.File), authorities(p.config)
	if p.seen == before && (p.seen != p.file || p.waiting) {
		p.file = p.seen
		p.load(ctx)
	}
	if p.seenCA == beforeCA && p.isReplaced(p.seenCA) {
		p.replaceAuthorities(p.seenCA)
	}
}

// reload loads the settings, unless the configuration file has a new text, which may be incomplete: then checkFiles does it.
func (p *process) reload(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting = read(p.File) != p.file; !p.waiting {
		p.load(ctx)
	}
}

// load loads the settings and uses them. Of settings that are invalid or refused, it uses those of the API server if these
// are valid. It logs each problem once. The caller holds mu.
func (p *process) load(ctx context.Context) {
	p.waiting = false
	now, err := p.Load(ctx)
	loaded := err == nil
	if loaded {
		err = p.accept(now)
	}
	if err == nil {
		p.problem, p.refusal = "", nil
		p.use(now)
		return
	}
	p.waiting = loaded // for another state of the role
	p.refuse(err)
	if rest := p.config.WithAPIServer(now); loaded || now.HasAPIServer() && p.check(rest) == nil {
		p.use(rest) // former credentials end
	}
}

// use makes settings the present ones, and restarts the roles that read a changed one. The caller holds mu.
func (p *process) use(now config.Config) {
	before, changes := p.config, p.config.Changes(now)
	p.config = now
	p.token()
	p.warn(before.Ignored)
	if before.APIToken != now.APIToken || len(changes) > 0 { // perhaps of the token's file
		poke(p.renewed)
	}
	for _, c := range changes {
		p.tell(c)
	}
	for _, r := range p.running {
		if r.reads(changes) {
			r.restart(ErrChanged)
			poke(r.reconfigured)
		}
	}
}

// reads reports whether one of the changed settings is the role's.
func (r *running) reads(changes []config.Change) bool {
	return slices.ContainsFunc(changes, func(c config.Change) bool { return slices.Contains(c.Readers, r.Reader) })
}

// refuse logs once why newer settings are not used. The caller holds mu.
func (p *process) refuse(err error) {
	if p.problem != err.Error() {
		p.problem = err.Error()
		p.log.Warnf("keeping the former configuration: %v", err)
	}
}

// warn logs the keys of the configuration that are ignored, and were not before.
func (p *process) warn(before []string) {
	for _, text := range p.config.Ignored {
		if !slices.Contains(before, text) {
			p.log.Warn(text)
		}
	}
}

// tell logs a changed setting and where it takes effect: in this process, after a restart, by a command.
func (p *process) tell(c config.Change) {
	var where []string
	for _, r := range p.running {
		text := "followed by the " + string(r.Reader)
		if slices.Contains(c.Readers, r.Reader) && !slices.Contains(where, text) {
			where = append(where, text)
		}
	}
	if slices.Contains(c.Readers, config.Restart) {
		where = append(where, "restart this program to use it")
	}
	if commands := c.Commands(); len(commands) > 0 {
		where = append(where, "run "+strings.Join(commands, " and ")+" again to use it there")
	}
	if len(where) > 0 {
		p.log.Infof("setting %s: now %q (%s), before %q: %s", c.Name, c.To, c.Source, c.From, strings.Join(where, "; "))
	}
}

// isReplaced reports whether a role serves with another text of authorities. The caller holds mu.
func (p *process) isReplaced(now string) bool {
	return now != "" && slices.ContainsFunc(p.running, func(r *running) bool { return now != r.ca })
}

// replaceAuthorities restarts roles that serve with another text of authorities, unless it is invalid. The caller holds mu.
func (p *process) replaceAuthorities(now string) {
	if err := p.check(p.config); err != nil {
		p.refuse(err)
		return
	}
	what, file := "CA certificate of the API server", p.config.APICAFile
	if p.config.Kubeconfig != "" {
		what, file = "kubeconfig", p.config.Kubeconfig
	}
	p.log.Infof("%s: %s was replaced", what, file)
	for _, r := range p.running {
		if now == r.ca {
			continue
		}
		r.restart(ErrChanged)
		poke(r.reconfigured)
		r.ca = now // until the role has begun again
	}
}

// authorities is the text of the file that a client of the API server reads once: a kubeconfig, or CA certificates. It is
// empty without such a file, or if the certificates are invalid. Role.Check looks at a kubeconfig.
func authorities(cfg config.Config) string {
	if cfg.Kubeconfig != "" {
		return read(cfg.Kubeconfig)
	}
	text := read(cfg.APICAFile)
	if text == "" || !x509.NewCertPool().AppendCertsFromPEM([]byte(text)) {
		return "" // clients report it
	}
	return text
}

// read returns the text of a file, "" if it cannot be read.
func read(file string) string {
	text, _ := os.ReadFile(file) // Load reports the error
	return string(text)
}
