// goloop: the same bare loop in Go, with net/http and goquery; nothing durable, no robots.txt.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/PuerkitoBio/goquery"
	"golang.org/x/net/html"
)

const concurrent = 64
const wanted = `a[href], area[href], iframe[src], frame[src],
	link[rel~="next"][href], link[rel~="canonical"][href], link[rel~="alternate"][href]`

type page struct {
	URL    string   `json:"url"`
	Status int      `json:"status"`
	Title  string   `json:"title"`
	Links  []string `json:"links"`
	next   string
}

func fetch(client *http.Client, address string) page {
	response, err := client.Get(address)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	found := page{URL: address, Status: response.StatusCode, Links: []string{}}
	if target, err := response.Location(); err == nil {
		found.next = target.String()
	}
	if kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind == "text/html" {
		extract(response, &found)
	}
	io.Copy(io.Discard, response.Body)
	return found
}

func extract(response *http.Response, found *page) {
	root, err := html.ParseWithOptions(response.Body, html.ParseOptionEnableScripting(false))
	if err != nil {
		return
	}
	document := goquery.NewDocumentFromNode(root)
	found.Title = strings.TrimSpace(document.Find("title").First().Text())
	base := response.Request.URL
	if href, ok := document.Find("base[href]").First().Attr("href"); ok {
		if other, err := base.Parse(href); err == nil {
			base = other
		}
	}
	seen := map[string]bool{}
	document.Find(wanted).Each(func(_ int, node *goquery.Selection) {
		href := node.AttrOr("href", node.AttrOr("src", ""))
		link, err := base.Parse(strings.TrimSpace(href))
		if err != nil || (link.Scheme != "http" && link.Scheme != "https") {
			return
		}
		link.Fragment = ""
		if text := link.String(); !seen[text] {
			seen[text] = true
			found.Links = append(found.Links, text)
		}
	})
}

func main() {
	start, err := url.Parse(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	site := start.Scheme + "://" + start.Host + "/"
	file, err := os.Create(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	out := bufio.NewWriter(file)
	encoder := json.NewEncoder(out)
	client := &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: concurrent, MaxConnsPerHost: concurrent},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}

	work, pages := make(chan string, concurrent), make(chan page, concurrent)
	var workers sync.WaitGroup
	for i := 0; i < concurrent; i++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for address := range work {
				pages <- fetch(client, address)
			}
		}()
	}

	seen := map[string]bool{start.String(): true}
	queue, running := []string{start.String()}, 0
	for len(queue) > 0 || running > 0 {
		for len(queue) > 0 && running < concurrent {
			work <- queue[0]
			queue, running = queue[1:], running+1
		}
		found := <-pages
		running--
		encoder.Encode(found)
		for _, link := range append(found.Links, found.next) {
			if strings.HasPrefix(link, site) && !seen[link] {
				seen[link] = true
				queue = append(queue, link)
			}
		}
	}
	close(work)
	workers.Wait()
	if out.Flush() != nil || file.Close() != nil {
		log.Fatal("could not write ", os.Args[2])
	}
}
