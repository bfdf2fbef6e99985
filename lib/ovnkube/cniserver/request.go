package cniserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"ovn-k8s/lib/cni"
	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/defect"
)

// handle answers a request: see protocol.Request.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	out := writer{w, http.NewResponseController(w)}
	if !s.running.TryRLock() {
		out.refuse(http.StatusServiceUnavailable, errEnding)
		return
	}
	defer s.running.RUnlock()
	err := defect.Catch(func() error { s.answer(out, r); return nil })
	if d := (*defect.Error)(nil); errors.As(err, &d) { // the other requests go on
		s.Log.Errorf("a request failed by a defect of this program: %v\n%s", d.Value, d.Stack)
		out.refuse(http.StatusInternalServerError, fmt.Errorf("a defect of ovnkube: %v", d.Value))
	}
}

// answer reads a request and answers it.
func (s *Server) answer(out writer, r *http.Request) {
	request, status, err := read(out, r)
	if err != nil {
		s.Log.Warnf("refused a request: %v", err)
		out.refuse(status, err)
		return
	}
	if request.Command == "VERSION" {
		_ = out.send(http.StatusOK, version.All)
		return
	}
	s.execute(out, r.Context(), request)
}

// execute executes a command until the client goes away.
func (s *Server) execute(out writer, ctx context.Context, request cni.Request) {
	ctx, leave, err := s.turns.enter(ctx, request)
	switch {
	case errors.Is(err, errEnding):
		out.refuse(http.StatusServiceUnavailable, errEnding)
		return
	case err != nil: // without an answer, net/http sends status 200
		failure := types.NewError(types.ErrTryAgainLater, "the request ended while it waited for an earlier one of the container", err.Error())
		_ = out.send(http.StatusBadRequest, protocol.Failure{Error: failure})
		return
	}
	defer leave()
	host := cni.Host{Settings: s.Settings, Pods: s.Pods, Switch: s.Switch, Log: s.Log, Hints: s.Hints}
	answer := host.Serve(ctx, request, func(a cni.Answer) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return out.send(http.StatusOK, protocol.Answer(*a.Result, a.Version))
	})
	switch {
	case answer.Err == nil && answer.Result == nil:
		_ = out.send(http.StatusOK, nil)
	case answer.Err != nil && errors.Is(context.Cause(ctx), errEnding):
		out.refuse(http.StatusServiceUnavailable, errEnding)
	case answer.Err != nil:
		_ = out.send(http.StatusBadRequest, protocol.Failure{Version: answer.Version, Error: answer.Err})
	}
}

// A writer writes one response.
type writer struct {
	http.ResponseWriter
	control *http.ResponseController
}

// send writes a value as JSON; nil: nothing. A client that does not take it is an error.
func (w writer) send(status int, value any) error {
	var text []byte
	if value != nil {
		var err error
		if text, err = json.Marshal(value); err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
	}
	return w.write(status, text)
}

// refuse writes one line.
func (w writer) refuse(status int, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_ = w.write(status, []byte(strings.ReplaceAll(err.Error(), "\n", "; ")+"\n")) // the client is gone, or hangs
}

func (w writer) write(status int, text []byte) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // if it fails, Flush does, too
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	w.WriteHeader(status)
	if _, err := w.Write(text); err != nil {
		return err
	}
	return w.control.Flush()
}

// read reads a request. The error is one line for the client, with the status.
func read(w writer, r *http.Request) (cni.Request, int, error) {
	var none cni.Request
	if r.URL.Path != "/" {
		return none, http.StatusNotFound, fmt.Errorf("path %.100q: want /", r.URL.Path)
	}
	if r.Method != http.MethodPost {
		return none, http.StatusMethodNotAllowed, fmt.Errorf("method %.20q: want POST", r.Method)
	}
	if err := w.control.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return none, http.StatusInternalServerError, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w.ResponseWriter, r.Body, protocol.MaxRequest))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		return none, http.StatusRequestEntityTooLarge, fmt.Errorf("the request is larger than %d bytes", large.Limit)
	}
	if err != nil {
		return none, http.StatusRequestTimeout, fmt.Errorf("reading the request: %w", err)
	}
	if err := w.control.SetReadDeadline(time.Time{}); err != nil { // from here on, the end of the connection ends the request
		return none, http.StatusInternalServerError, err
	}
	request, err := parse(body)
	return request, http.StatusBadRequest, err
}

// parse parses the body of a request. The error is one line.
func parse(body []byte) (cni.Request, error) {
	var r protocol.Request
	if err := json.Unmarshal(body, &r); err != nil {
		return cni.Request{}, fmt.Errorf(`the request is not JSON of the form {"env": {"CNI_COMMAND": "ADD", …}, "config": "BASE64"}: %w`, err)
	}
	switch command := r.Env["CNI_COMMAND"]; command {
	case "VERSION":
		return cni.Request{Command: command}, nil
	case "ADD", "DEL", "CHECK":
		if err := checkAttachment(r.Env); err != nil {
			return cni.Request{}, err
		}
	case "GC", "STATUS":
	case "":
		return cni.Request{}, errors.New("the request lacks env CNI_COMMAND")
	default:
		return cni.Request{}, fmt.Errorf("CNI_COMMAND is %.20q: want ADD, DEL, CHECK, GC, STATUS or VERSION", command)
	}
	if err := checkConfig(r.Config); err != nil {
		return cni.Request{}, err
	}
	return cni.Request{Command: r.Env["CNI_COMMAND"], Args: &skel.CmdArgs{
		ContainerID: r.Env["CNI_CONTAINERID"], Netns: r.Env["CNI_NETNS"], IfName: ifname(r.Env), Args: r.Env["CNI_ARGS"], Path: r.Env["CNI_PATH"],
		StdinData: r.Config,
	}}, nil
}

// ifname is the name of the container's interface; plugins of before 2016 had a default.
func ifname(env map[string]string) string { return cmp.Or(env["CNI_IFNAME"], "eth0") }

// checkAttachment checks the variables of an attachment. CNI_ARGS is a matter of the command: DEL works without it.
func checkAttachment(env map[string]string) error {
	netns, given := env["CNI_NETNS"]
	switch {
	case env["CNI_CONTAINERID"] == "":
		return errors.New("the request lacks env CNI_CONTAINERID")
	case !given || netns == "" && env["CNI_COMMAND"] != "DEL":
		return errors.New("the request lacks env CNI_NETNS")
	}
	for _, err := range []*types.Error{utils.ValidateContainerID(env["CNI_CONTAINERID"]), utils.ValidateInterfaceName(ifname(env))} {
		if err != nil {
			return short(err)
		}
	}
	return nil
}

// checkConfig checks a network configuration, as package skel does for a plugin.
func checkConfig(config []byte) error {
	if len(config) == 0 {
		return errors.New("the request lacks config")
	}
	var named struct{ Name string }
	if err := json.Unmarshal(config, &named); err != nil {
		return fmt.Errorf("config is not JSON: %w", err)
	}
	if named.Name == "" {
		return errors.New("config lacks name")
	}
	if err := utils.ValidateNetworkName(named.Name); err != nil {
		return short(err)
	}
	v, err := (&version.ConfigDecoder{}).Decode(config)
	if err == nil && !slices.Contains(version.All.SupportedVersions(), v) {
		err = fmt.Errorf("config has cniVersion %.20q: want one of %s", v, strings.Join(version.All.SupportedVersions(), ", "))
	}
	return err
}

// short is an error with its value, cut for a line.
func short(err *types.Error) error { return fmt.Errorf("%.300s", err.Error()) }
