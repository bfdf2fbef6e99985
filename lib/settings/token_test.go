package settings

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
)

func jwt(issued, end time.Time) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode(fmt.Appendf(nil, `{"exp":%d,"iat":%d,"sub":"x"}`, end.Unix(), issued.Unix())) + ".c2ln"
}

// Section 5 of the findings: FollowToken warns some days before a token ends, and when it has ended.
func TestTokens(t *testing.T) {
	now := time.Unix(1700000000, 0)
	day := 24 * time.Hour
	for _, tt := range []struct {
		what        string
		issued, end time.Duration // from now
		want        string
	}{
		{"a year", -10 * day, 355 * day, ""},
		{"the last week of a year", -360 * day, 5 * day, "ends at 2023-11-19T22:13:20Z, in 120h0m0s: renew it"},
		{"a day", 0, day, ""},
		{"the end of a day", -23 * time.Hour, time.Hour, "in 1h0m0s: renew it"},
		{"ended", -day, -time.Second, "ended at 2023-11-14T22:13:19Z, and the API server refuses it: renew it"},
	} {
		token, ok := ReadToken(config.Config{APIToken: config.Secret(jwt(now.Add(tt.issued), now.Add(tt.end)))})
		if got := token.Problem(now); !ok || tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %v, %q", tt.what, ok, got)
		}
	}
	for _, text := range []string{"", "abcdef.0123456789abcdef", "a.b.c", "a.e30.c"} {
		if _, ok := ReadToken(config.Config{APIToken: config.Secret(text)}); ok {
			t.Errorf("%q says when it ends", text)
		}
	}
}

// A file with another token is read when due, and the log shows nothing of the token.
func TestFollowToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(end time.Duration) string {
		text := jwt(time.Now().Add(-time.Hour), time.Now().Add(end))
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return text
	}
	secret := write(time.Minute)
	said, changed := make(chan string, 9), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		FollowToken(ctx, func() (Token, bool) { return ReadToken(config.Config{APITokenFile: file}) }, changed, func(text string) { said <- text })
	}()
	if got := <-said; !strings.Contains(got, "(k8s-api-token-file "+file+") ends at") || strings.Contains(got, secret) {
		t.Errorf("got %q", got)
	}
	changed <- struct{}{} // the same
	write(365 * 24 * time.Hour)
	changed <- struct{}{}
	write(-time.Minute)
	changed <- struct{}{}
	if got := <-said; !strings.Contains(got, "ended at") {
		t.Errorf("got %q", got)
	}
	cancel()
	<-ended
	if len(said) > 0 {
		t.Errorf("also said %q", <-said)
	}
}

// The token in another file is checked as soon as a setting names that file.
func TestFollowerChecksAnotherTokenFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := map[string]string{configFile: filepath.Join(dir, "conf")}
	synctest.Test(t, func(t *testing.T) {
		write("good", jwt(time.Now(), time.Now().Add(365*24*time.Hour)))
		write("ended", jwt(time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)))
		write("conf", "[default]\nk8s_api_token_file="+dir+"/good\n")
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		f := Follower{
			File: flags[configFile],
			Load: func(ctx context.Context) (config.Config, error) { return Load(ctx, flags, nil) },
			Roles: []Role{{Log: logrus.NewEntry(log), Reader: config.Watcher, Serve: func(ctx context.Context, _ Session, ready func()) error {
				ready()
				<-ctx.Done()
				return ctx.Err()
			}}},
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx, func() {}) }()
		time.Sleep(10 * time.Second)
		write("conf", "[default]\nk8s_api_token_file="+dir+"/ended\n")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !strings.Contains(out.String(), "/ended) ended at") {
			t.Errorf("the log has no line about the token: %s", out.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
