package cli

import (
	"fmt"
	"net/netip"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/console"
)

// envUsers names the variable with the users, in the format of the --basic-auth file.
const envUsers = "REDELIVER_CONSOLE_USERS"

// accessFlags configure the users of the console and their rights.
type accessFlags struct {
	basic  string
	proxy  []string
	user   string
	groups string
	secret string
	grants []string
}

func (f *accessFlags) flags(flags *pflag.FlagSet) { grouped(flags, groupAccess, f.define) }

func (f *accessFlags) define(flags *pflag.FlagSet) {
	flags.StringVar(&f.basic, "basic-auth", "", "Read the users from this `file`, with lines of NAME:ROLE[@DLQS][,ROLE@DLQS]:PASSWORD. A role is viewer, reader or operator, and DLQS is a pattern such as orders.* (default the lines in $"+envUsers+")")
	flags.StringSliceVar(&f.proxy, "behind-proxy", nil, "Trust a proxy with addresses in `CIDR,...` to authenticate users. It must replace the headers with user and groups in their requests")
	flags.StringVar(&f.user, "user-header", "", "Read the user's name from this `header` of the proxy (default X-Forwarded-User)")
	flags.StringVar(&f.groups, "groups-header", "", "Read the user's groups, separated by commas, from this `header` of the proxy (default X-Forwarded-Groups)")
	flags.StringVar(&f.secret, "proxy-secret-file", "", "Read the secret that the proxy adds as the header X-Proxy-Secret from this `file`. Required if the proxy runs on this machine")
	flags.StringArrayVar(&f.grants, "grant", nil, "Give the role in `ROLE[@DLQS]=WHO,...` to users, to @GROUPS, or to * for everybody whom the proxy admits. DLQS is a pattern such as orders.*. The highest role counts. Repeatable")
}

// auth returns the authentication of the flags. The zero Auth serves only this machine.
func (f *accessFlags) auth(env func(string) string) (console.Auth, error) {
	lines, from := env(envUsers), envUsers
	if f.basic != "" {
		text, err := os.ReadFile(f.basic)
		if err != nil {
			return console.Auth{}, usagef("reading the users: %w", err)
		}
		if lines, from = string(text), f.basic; strings.TrimSpace(lines) == "" {
			return console.Auth{}, usagef("there are no users in %s", from)
		}
	}
	switch {
	case lines != "" && len(f.proxy) > 0:
		return console.Auth{}, usagef("--behind-proxy and the users in %s exclude each other; remove one of them", from)
	case len(f.proxy) == 0 && (len(f.grants) > 0 || f.user != "" || f.groups != "" || f.secret != ""):
		return console.Auth{}, usagef("--grant, --user-header, --groups-header and --proxy-secret-file need addresses in --behind-proxy")
	case lines != "":
		users, err := readUsers(lines, from)
		if err != nil {
			return console.Auth{}, err
		}
		return console.Basic(users...), nil
	case len(f.proxy) > 0:
		return f.behindProxy()
	default:
		return console.Auth{}, nil
	}
}

// isOpen reports whether the console has no authentication.
func (f *accessFlags) isOpen(env func(string) string) bool {
	return f.basic == "" && env(envUsers) == "" && len(f.proxy) == 0
}

// readUsers parses NAME:ROLE:PASSWORD lines. Its errors quote no line: if a colon is missing, any part may be a
// password.
func readUsers(lines, from string) (users []console.User, err error) {
	n := 0
	for line := range strings.Lines(lines) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 {
			return nil, usagef("line %d of %s must be NAME:ROLE:PASSWORD", n, from)
		}
		user := console.User{Name: parts[0], Password: parts[2]}
		for text := range strings.SplitSeq(parts[1], ",") {
			right, err := readRight(text)
			if err != nil {
				return nil, usagef("line %d of %s: the role must be viewer, reader or operator, or ROLE@DLQS with a pattern of names", n, from)
			}
			if right.DLQs == "" {
				user.Role = max(user.Role, right.Role)
			} else {
				user.Rights = append(user.Rights, right)
			}
		}
		users = append(users, user)
	}
	if len(users) == 0 {
		return nil, usagef("there are no users in %s", from)
	}
	return users, nil
}

func (f *accessFlags) behindProxy() (console.Auth, error) {
	cfg := console.ProxyConfig{User: f.user, Groups: f.groups}
	if f.secret != "" {
		var err error
		if cfg.Secret, err = readPassword(nil, f.secret); err != nil {
			return console.Auth{}, err
		}
	}
	for _, text := range f.proxy {
		prefix, err := readPrefix(text)
		if err != nil {
			return console.Auth{}, err
		}
		cfg.From = append(cfg.From, prefix)
	}
	if len(f.grants) == 0 {
		return console.Auth{}, usagef("--behind-proxy needs --grant, or nobody has a role; --grant viewer=* makes everybody whom the proxy admits a viewer")
	}
	var all grants
	for _, text := range f.grants {
		name, list, ok := strings.Cut(text, "=")
		right, err := readRight(strings.TrimSpace(name))
		who := strings.Split(list, ",")
		for i := range who {
			who[i] = strings.TrimSpace(who[i])
		}
		if err != nil || !ok || slices.Contains(who, "") || slices.Contains(who, "@") {
			return console.Auth{}, usagef("--grant is %q: must be ROLE=WHO, as operator=@ops,ann or operator@orders.*=@shop", text)
		}
		all = append(all, grant{right, who})
	}
	cfg.Rights = all.rights
	return console.BehindProxy(cfg), nil
}

func readPrefix(text string) (netip.Prefix, error) {
	if at, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(at, at.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, usagef("--behind-proxy is %q: must be an IP address or a CIDR, as 10.0.0.1 or 10.0.0.0/8", text)
	}
	if prefix.Bits() == 0 {
		return prefix, usagef("--behind-proxy %s covers all addresses, so anybody could claim any name", text)
	}
	return prefix, nil
}

// readRight parses ROLE or ROLE@DLQS. An empty DLQs means all.
func readRight(text string) (r console.Right, err error) {
	name, pattern, some := strings.Cut(text, "@")
	if r.Role, err = console.ParseRole(name); err != nil {
		return r, err
	}
	if _, err := path.Match(pattern, ""); err != nil || some && pattern == "" {
		return r, fmt.Errorf("%q is not a valid pattern of names", pattern)
	}
	r.DLQs = pattern
	return r, nil
}

// grant is a right and its owners.
type grant struct {
	right console.Right
	who   []string
}

type grants []grant

// rights returns the rights of a user.
func (g grants) rights(user string, groups []string) (rights []console.Right) {
	for _, one := range g {
		has := func(who string) bool {
			group, isGroup := strings.CutPrefix(who, "@")
			return who == "*" || isGroup && slices.Contains(groups, group) || !isGroup && who == user
		}
		if slices.ContainsFunc(one.who, has) {
			rights = append(rights, one.right)
		}
	}
	return rights
}

// warnings returns warnings about files that work but are unsafe.
func (f *accessFlags) warnings() (all []string) {
	for _, file := range []string{f.basic, f.secret} {
		if at, err := os.Stat(file); file != "" && err == nil && at.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
			all = append(all, "everybody on this machine may read "+file+": chmod 600 "+file)
		}
	}
	return all
}
