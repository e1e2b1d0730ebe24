// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"image"
	_ "image/jpeg" // which decodes what is made
	_ "image/png"  // likewise
	"strings"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
)

// pictured returns the files in a body of any API, and its text.
func pictured(t *testing.T, p Prompt) (files []string, text string) {
	t.Helper()
	var body struct {
		Messages, Input []struct {
			Content []struct {
				Type, Text string
				Source     struct{ Data string }
				Image      json.RawMessage `json:"image_url"`
			}
		}
	}
	if err := json.Unmarshal(read(t, p.Request), &body); err != nil {
		t.Fatal(err)
	}
	all := append(body.Messages, body.Input...)
	for i, c := range all[len(all)-1].Content {
		if i == 0 {
			if text = c.Text; !strings.HasSuffix(c.Type, "text") {
				t.Errorf("the first part is %s", c.Type)
			}
			continue
		}
		url := string(c.Image)
		var object struct{ URL string }
		if json.Unmarshal(c.Image, &object) == nil && object.URL != "" {
			url = object.URL
		}
		_, data, _ := strings.Cut(strings.Trim(url, `"`), ";base64,")
		if c.Source.Data != "" {
			data = c.Source.Data
		}
		raw, err := base64.StdEncoding.DecodeString(data)
		if err != nil || len(raw) == 0 {
			t.Fatalf("%v: %.100s", err, c.Image)
		}
		files = append(files, string(raw))
	}
	return files, text
}

// shown returns a row with pictures.
func shown(images ...mooncake.Image) *mooncake.Row {
	row := lengthRow(100, 7, 1)
	row.Images = images
	return row
}

// TestImages: a row's images come after its text, in the form of each API. The same id and size give the same image, in every row and every
// process with the same seed.
func TestImages(t *testing.T) {
	one, two, large := mooncake.Image{ID: 7, Width: 40, Height: 30}, mooncake.Image{ID: 8, Width: 40, Height: 30}, mooncake.Image{ID: 7}
	for _, endpoint := range []Endpoint{Chat, Responses, Messages} {
		for _, format := range []ImageFormat{PNG, JPEG} {
			o := Options{Endpoint: endpoint, Model: "m", Images: Images{Format: format, Size: ImageSize{64, 48}}}
			b := newBuilder(t, o)
			files, text := pictured(t, build(t, b, 0, shown(one, two, one, large), nil))
			if len(files) != 4 || files[0] != files[2] || files[0] == files[1] || files[0] == files[3] || len(strings.Fields(text)) != 100 {
				t.Fatalf("%s: %d files, %d words", endpoint, len(files), len(strings.Fields(text)))
			}
			for i, want := range []image.Point{{40, 30}, {40, 30}, {40, 30}, {64, 48}} {
				img, is, err := image.Decode(strings.NewReader(files[i]))
				if err != nil || img.Bounds().Max != want || is != string(format) {
					t.Errorf("%s, picture %d: %v, %v, %s", endpoint, i, err, img.Bounds(), is)
				}
			}
			again, _ := pictured(t, build(t, newBuilder(t, o), 5, shown(two, one), nil))
			if again[1] != files[0] || again[0] != files[1] {
				t.Errorf("%s: the same images have other pictures in another row", endpoint)
			}
			o.Seed = 9
			if other, _ := pictured(t, build(t, newBuilder(t, o), 0, shown(one), nil)); other[0] == files[0] {
				t.Errorf("%s: another seed shows the same picture", endpoint)
			}
			if warm, _ := pictured(t, build(t, b, -1, shown(one), nil)); warm[0] == files[0] {
				t.Errorf("%s: a warm-up shows a picture of the trace", endpoint)
			}
		}
	}
	plain := newBuilder(t, Options{Model: "m"})
	if !bytes.Contains(read(t, build(t, plain, 0, lengthRow(100, 7, 1), nil).Request), []byte(`"content":"go `)) {
		t.Error("a row without pictures has parts")
	}
}

// TestImagesOfEachRow: no two images that the replay adds are equal; images whose tokens are known replace words.
func TestImagesOfEachRow(t *testing.T) {
	b := newBuilder(t, Options{Model: "m", Images: Images{Each: 2, Size: ImageSize{16, 16}, Tokens: 30}})
	seen := map[string]bool{}
	for index := range int64(20) {
		p := build(t, b, index, lengthRow(100, 7, 1), nil)
		files, text := pictured(t, p)
		for _, f := range files {
			seen[f] = true
		}
		if n := len(strings.Fields(text)); len(files) != 2 || n != 40 || p.Tokens != 100 {
			t.Errorf("row %d: %d pictures, %d words, %d tokens", index, len(files), n, p.Tokens)
		}
	}
	if len(seen) != 40 {
		t.Errorf("%d pictures, want 40", len(seen))
	}
	if p := build(t, newBuilder(t, Options{Model: "m", Images: Images{Each: 1}}), 0, lengthRow(100, 7, 1), nil); p.Tokens != 0 {
		t.Errorf("%d tokens are stated, although it is unknown how many a picture has", p.Tokens)
	}
	// A row of text can have images, too; messages contain their own.
	text := textRow("hi \"you\"")
	files, said := pictured(t, build(t, b, 0, text, nil))
	if len(files) != 2 || said != `hi "you"` {
		t.Errorf("%d pictures, %q", len(files), said)
	}
	if body := read(t, build(t, b, 0, messagesRow(`[{"role":"user","content":"u"}]`), nil).Request); bytes.Contains(body, []byte("image")) {
		t.Errorf("%s", body)
	}
}

// TestImagesRefused: a request without messages cannot have images; sizes are bounded.
func TestImagesRefused(t *testing.T) {
	for _, o := range []Options{
		{Endpoint: Completions, Images: Images{Each: 1}},
		{Endpoint: Embeddings, Images: Images{Each: 1}},
		{Images: Images{Size: ImageSize{9000, 10}}},
		{Images: Images{Size: ImageSize{8192, 8192}}},
		{Images: Images{Size: ImageSize{10, 0}}},
		{Images: Images{Format: "gif"}},
		{Images: Images{Each: 1000}},
		{Images: Images{Each: 17, Size: ImageSize{4096, 4096}}},
	} {
		if _, err := NewBuilder(o); err == nil {
			t.Errorf("%+v is accepted", o.Images)
		}
	}
	b := newBuilder(t, Options{Endpoint: Completions})
	if _, err := b.Build(0, shown(mooncake.Image{ID: 1}), nil); err == nil || !strings.Contains(err.Error(), "images go to") {
		t.Errorf("%v", err)
	}
	for _, text := range []string{"", "x", "10", "10x", "0x0", "-1x5", "10x10x10", "99999x9", "8192x8192", "1e3x5", "999999999999999999999x1"} {
		if size, err := ParseImageSize(text); err == nil {
			t.Errorf("%q is %+v", text, size)
		}
	}
}

// TestImagesWithoutASize: images without a size count with the size of the settings.
func TestImagesWithoutASize(t *testing.T) {
	b := newBuilder(t, Options{Model: "m", Images: Images{Size: ImageSize{4096, 4096}}})
	if _, err := b.Build(0, shown(make([]mooncake.Image, 17)...), nil); !errors.Is(err, ErrRow) || !strings.Contains(err.Error(), "285212672 pixels in all") {
		t.Errorf("%v", err)
	}
}

// TestImagesOfAStoppedRun: no image is made any more when the run has been stopped; a row without images can still be built.
func TestImagesOfAStoppedRun(t *testing.T) {
	b := newBuilder(t, Options{Model: "m"})
	done := make(chan struct{})
	b.Until(done)
	build(t, b, 0, shown(mooncake.Image{ID: 1, Width: 40, Height: 30}), nil)
	close(done)
	if _, err := b.Build(0, shown(mooncake.Image{ID: 2, Width: 4096, Height: 4096}), nil); !errors.Is(err, errStopped) || len(b.gallery.kept) != 1 {
		t.Errorf("%v, %d images", err, len(b.gallery.kept))
	}
	build(t, b, 0, lengthRow(100, 7, 1), nil)
}

// TestLargestImage: the memory for images is bounded, and the largest one is small in a body.
func TestLargestImage(t *testing.T) {
	b := newBuilder(t, Options{Model: "m"})
	p := build(t, b, 0, shown(mooncake.Image{ID: 1, Width: 4096, Height: 4096}), nil)
	if p.Request.Body.Size > 4<<20 {
		t.Errorf("%d bytes", p.Request.Body.Size)
	}
	for i := range 2 * maxGallery / 200_000 {
		b.gallery.picture(mooncake.Image{ID: uint64(i), Width: 1500, Height: 100}, 0, JPEG, b.stopped)
		if b.gallery.size > maxGallery {
			t.Fatalf("%d bytes are kept", b.gallery.size)
		}
	}
}
