// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package objects

// This file makes the clients of S3 and of Google Cloud Storage from the environment.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// attempts is the number of attempts for a request, unless AWS_MAX_ATTEMPTS sets it for S3, with half a second between two on average: a run
	// that took hours must not be lost with its pod because a store restarts.
	attempts = 20
	// metadata is the time limit for the service that has the credentials of a machine or a pod. Without such a service, nothing answers.
	metadata = 5 * time.Second

	google = "https://storage.googleapis.com" // Google's API for S3 clients
)

// client is the client of one of the two services.
type client struct {
	*minio.Core
	transport *http.Transport
	endpoint  string // as an error names it
	reach     string // what to check if nothing answers there
}

// connect returns the client for a scheme.
func connect(scheme string) (*client, error) {
	opt := &minio.Options{MaxRetries: attempts, BucketLookup: minio.BucketLookupPath} // few servers other than Amazon's have a host name for each bucket
	var endpoint, variable string
	var err error
	if scheme == "gs" {
		variable, opt.Region = "GS_ENDPOINT_URL", "auto"
		endpoint = cmp.Or(os.Getenv(variable), google)
		opt.Creds, err = googleKeys()
	} else {
		if variable = "AWS_ENDPOINT_URL"; os.Getenv("AWS_ENDPOINT_URL_S3") != "" {
			variable = "AWS_ENDPOINT_URL_S3"
		}
		endpoint = os.Getenv(variable)
		opt.Region = cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
		if endpoint == "" { // Amazon's own server: the library asks it for the region if none is set
			endpoint, opt.BucketLookup = "https://s3.amazonaws.com", minio.BucketLookupAuto
		} else {
			opt.Region = cmp.Or(opt.Region, "us-east-1") // other servers seldom look at it
		}
		if opt.MaxRetries, err = maxAttempts(); err == nil {
			opt.Creds, err = amazonKeys()
		}
	}
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%s is not the address of a server: want http(s)://host:port, without a path and without credentials", variable) // the address is not quoted: it may contain credentials
	}
	opt.Secure = u.Scheme == "https"
	transport, err := minio.DefaultTransport(opt.Secure)
	if err != nil {
		return nil, err
	}
	opt.Transport = pager{transport}
	core, err := minio.NewCore(u.Host, opt)
	if err != nil {
		return nil, err
	}
	reach := "is this machine connected to the network, and is HTTPS_PROXY set if it needs a proxy? For another server, set " + variable
	if os.Getenv(variable) != "" {
		reach = "is the server running, and is " + variable + " its address, as seen from here?"
	}
	return &client{core, transport, u.Scheme + "://" + u.Host, reach}, nil
}

// maxAttempts reads AWS_MAX_ATTEMPTS.
func maxAttempts() (int, error) {
	text := os.Getenv("AWS_MAX_ATTEMPTS")
	if text == "" {
		return attempts, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("AWS_MAX_ATTEMPTS is %q: want a whole number, 1 or more", text)
	}
	return n, nil
}

// googleKeys returns the id and the secret of an HMAC key. Google's API for S3 clients needs such a key.
func googleKeys() (*credentials.Credentials, error) {
	id, secret := os.Getenv("GS_ACCESS_KEY_ID"), os.Getenv("GS_SECRET_ACCESS_KEY")
	if id == "" || secret == "" {
		return nil, errors.New("gs:// needs an HMAC key: export GS_ACCESS_KEY_ID and GS_SECRET_ACCESS_KEY; " +
			"gcloud storage hmac create SERVICE_ACCOUNT makes one (docs/object-storage.md)")
	}
	return credentials.NewStaticV4(id, secret, ""), nil
}

// amazonKeys returns the keys of the environment, of a user's file, or of the role of a pod, a task or a machine: the first that exist. They
// are looked up here, because the library's own chain continues without keys if one source fails, and then S3 reports only that access is
// denied.
func amazonKeys() (*credentials.Credentials, error) {
	context := &credentials.CredContext{Client: &http.Client{Timeout: metadata, Transport: &http.Transport{Proxy: noLocalProxy}}}
	id, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if (id == "") != (secret == "") {
		return nil, errors.New("one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set without the other")
	}
	if id != "" {
		return credentials.NewEnvAWS(), nil
	}
	file := credentials.NewFileAWSCredentials("", "")
	keys, err := file.GetWithContext(context)
	switch profile := os.Getenv("AWS_PROFILE"); {
	case err == nil && keys.AccessKeyID != "" && keys.SecretAccessKey != "":
		return file, nil
	case profile != "":
		// The error about a file may quote one of its lines.
		return nil, fmt.Errorf("the credentials file has no keys of the profile %q, which AWS_PROFILE names; for a profile with a role or a single sign-on, "+
			"export keys: eval $(aws configure export-credentials --format env)", profile)
	}
	role := credentials.New(&credentials.IAM{Client: context.Client})
	asked := os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" || os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" ||
		os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != ""
	if asked || os.Getenv("AWS_EC2_METADATA_DISABLED") != "true" {
		keys, err = role.GetWithContext(context)
		switch {
		case err == nil && keys.AccessKeyID != "":
			return role, nil
		case asked:
			return nil, fmt.Errorf("the role that the environment names gives no credentials: %s", short(err))
		}
	}
	return nil, errors.New("there are no credentials: export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the pod or the machine a role " +
		"(docs/object-storage.md)")
}

// noLocalProxy sends requests to a machine's own services around any proxy.
func noLocalProxy(r *http.Request) (*url.URL, error) {
	if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil && (ip.IsLinkLocalUnicast() || ip.IsLoopback()) {
		return nil, nil //nolint:nilnil // an address that no proxy handles
	}
	return http.ProxyFromEnvironment(r)
}

// maxMessage bounds the message of a service in an error, in bytes.
const maxMessage = 300

// oneLine returns the text of a server as one line of at most maxMessage bytes: its further lines would look like ours.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "…"
	}
	return text
}

// short returns the message of a service or a network, without URLs and the ids of requests.
func short(err error) string {
	if err == nil {
		return "the answer contains no key"
	}
	if e, ok := errors.AsType[minio.ErrorResponse](err); ok {
		if e.Message == "" || e.Message == e.Code {
			return oneLine(e.Code)
		}
		return oneLine(e.Code + ": " + e.Message)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "no host " + e.Name + " is known"
		}
		return "the name " + e.Name + " cannot be resolved: " + e.Err
	}
	return err.Error()
}
