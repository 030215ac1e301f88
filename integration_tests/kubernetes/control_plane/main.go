// The control plane of a Kubernetes cluster for tests in one program: etcd, and the API server.
package main

import (
	"fmt"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "apiserver" {
		os.Args = append([]string{"kube-apiserver"}, os.Args[2:]...)
		os.Exit(cli.Run(app.NewAPIServerCommand()))
	}
	if len(os.Args) != 5 || os.Args[1] != "etcd" {
		fail(fmt.Errorf("usage: control-plane etcd DIRECTORY CLIENT-URL PEER-URL, or control-plane apiserver OPTION..."))
	}
	serve(os.Args[2], address(os.Args[3]), address(os.Args[4]))
}

// serve runs etcd until it stops.
func serve(directory string, client, peer url.URL) {
	settings := embed.NewConfig()
	settings.Dir = directory
	settings.LogLevel = "warn"
	settings.ListenClientUrls, settings.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	settings.ListenPeerUrls, settings.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	settings.InitialCluster = settings.InitialClusterFromName(settings.Name)
	server, err := embed.StartEtcd(settings)
	if err != nil {
		fail(err)
	}
	<-server.Server.StopNotify()
}

func address(text string) url.URL {
	found, err := url.Parse(text)
	if err != nil {
		fail(err)
	}
	return *found
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
