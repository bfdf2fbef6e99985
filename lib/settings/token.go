package settings

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"ovn-k8s/lib/config"
)

// A Token is the content of a token for the API server: a JSON Web Token (RFC 7519). Its signature is not checked.
type Token struct {
	Source      string    // the setting with the token
	issued, end time.Time // zero: not in the token
}

// tokenWarning is the longest time between the warning and the end of a token: a tenth of its lifetime if that is
// less.
const tokenWarning = 7 * 24 * time.Hour

// ReadToken reads the token named by a configuration. It reports false without a token, for one without an end, and if a
// kubeconfig replaces it.
func ReadToken(c config.Config) (Token, bool) {
	if c.Kubeconfig != "" {
		return Token{}, false
	}
	text, source := c.APIToken.Reveal(), "k8s-api-token"
	if text == "" {
		b, err := os.ReadFile(c.APITokenFile)
		if err != nil {
			return Token{}, false // clients report it
		}
		text, source = strings.TrimSpace(string(b)), "k8s-api-token-file "+c.APITokenFile
	}
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return Token{}, false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct{ Iat, Exp float64 }
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return Token{}, false
	}
	t := Token{Source: source, end: time.Unix(int64(claims.Exp), 0)}
	if claims.Iat > 0 {
		t.issued = time.Unix(int64(claims.Iat), 0)
	}
	return t, true
}

// warnAt is the time to renew a token.
func (t Token) warnAt() time.Time {
	early := tokenWarning
	if tenth := t.end.Sub(t.issued) / 10; !t.issued.IsZero() && tenth > 0 {
		early = min(early, tenth)
	}
	return t.end.Add(-early)
}

// Ended reports whether the API server refuses the token by now.
func (t Token) Ended(now time.Time) bool { return !now.Before(t.end) }

// Problem describes a token that has ended or ends soon, with the remedy; "" if neither.
func (t Token) Problem(now time.Time) string {
	at := t.end.UTC().Format(time.RFC3339)
	const renew = `renew it as docs/install.md says, "Tokens"; no restart is needed`
	switch {
	case t.Ended(now):
		return fmt.Sprintf("the token for the API server (%s) ended at %s, and the API server refuses it: %s", t.Source, at, renew)
	case !now.Before(t.warnAt()):
		return fmt.Sprintf("the token for the API server (%s) ends at %s, in %v: %s", t.Source, at, t.end.Sub(now).Round(time.Minute), renew)
	}
	return ""
}

// tokenInterval bounds the time until a file with another token is noticed.
const tokenInterval = time.Hour

// FollowToken calls warn when the token returned by load is about to end, and when it has ended, until ctx ends. A
// value in changed makes it check at once; changed may be nil.
func FollowToken(ctx context.Context, load func() (Token, bool), changed <-chan struct{}, warn func(string)) {
	type state struct {
		end   int64
		ended bool
	}
	var last state
	for {
		wait := tokenInterval
		if t, ok := load(); ok {
			now := time.Now()
			is := state{t.end.Unix(), t.Ended(now)}
			if text := t.Problem(now); text != "" && is != last {
				last = is
				warn(text)
			}
			for _, at := range []time.Time{t.warnAt(), t.end} {
				if at.After(now) {
					wait = min(wait, at.Sub(now))
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(wait):
		}
	}
}
