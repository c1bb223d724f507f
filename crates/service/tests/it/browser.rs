//! A browser without a script: cookies, forms, and what HTML holds.

use std::collections::HashMap;

use reqwest::{Client, Method, Response, header, redirect::Policy};

use crate::site::Site;

/// A browser that follows no redirect by itself.
pub(crate) struct Browser {
    client: Client,
    pub(crate) url: String,
    pub(crate) cookies: HashMap<String, String>,
    /// What it says of where forms come from.
    pub(crate) origin: Option<String>,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: header::HeaderMap,
    pub(crate) text: String,
}

/// A tag with its attributes.
#[derive(Debug)]
pub(crate) struct Tag {
    pub(crate) name: String,
    pub(crate) attributes: Vec<(String, String)>,
}

impl Browser {
    pub(crate) fn new(site: &Site) -> Self {
        let client = Client::builder().no_proxy().redirect(Policy::none());
        Self::with(client.build().unwrap(), &site.url)
    }

    /// With certificates of its own. Its client must follow no redirect.
    pub(crate) fn with(client: Client, url: &str) -> Self {
        Self {
            client,
            url: url.to_owned(),
            cookies: HashMap::new(),
            origin: Some(url.to_owned()),
        }
    }

    pub(crate) async fn logged_in(site: &Site, token: &str) -> Self {
        let mut browser = Self::new(site);
        let answer = browser.log_in(token).await;
        assert_eq!((answer.status, answer.location()), (303, "/jobs"));
        browser
    }

    pub(crate) async fn log_in(&mut self, token: &str) -> Answer {
        self.send("/login", &[("token", token)]).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.get_with(path, &[]).await
    }

    pub(crate) async fn get_with(
        &mut self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Answer {
        let request = self.client.get(format!("{}{path}", self.url));
        let mut request = request.header(header::COOKIE, self.cookie());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.take(request.send().await.unwrap()).await
    }

    /// A page that must be there.
    pub(crate) async fn page(&mut self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.text
    }

    /// A form of a page of the session.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let token = self.form_token().await;
        let fields = [fields, &[("form", token.as_str())]].concat();
        self.send(path, &fields).await
    }

    pub(crate) async fn form_token(&mut self) -> String {
        let page = self.page("/submit").await;
        let fields = tags(&page).into_iter();
        let mut fields = fields.filter(|tag| tag.attribute("name") == Some("form"));
        let field = fields.next().unwrap();
        field.attribute("value").unwrap().to_owned()
    }

    /// A form as it is.
    pub(crate) async fn send(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send_with(path, fields, &[]).await
    }

    pub(crate) async fn send_with(
        &mut self,
        path: &str,
        fields: &[(&str, &str)],
        headers: &[(&'static str, &str)],
    ) -> Answer {
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let mut request = self
            .client
            .request(Method::POST, format!("{}{path}", self.url))
            .header(header::COOKIE, self.cookie())
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
        if let Some(origin) = &self.origin {
            request = request.header(header::ORIGIN, origin);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        self.take(answer).await
    }

    fn cookie(&self) -> String {
        let pairs = self
            .cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join("; ")
    }

    async fn take(&mut self, answer: Response) -> Answer {
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        for line in headers.get_all(header::SET_COOKIE) {
            let line = line.to_str().unwrap();
            let (name, rest) = line.split_once('=').unwrap();
            let (value, attributes) = rest.split_once(';').unwrap();
            match attributes.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        Answer {
            status,
            headers,
            text: answer.text().await.unwrap(),
        }
    }
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn location(&self) -> &str {
        self.header("location")
    }

    /// What it has the browser keep.
    pub(crate) fn set_cookies(&self) -> Vec<&str> {
        let lines = self.headers.get_all(header::SET_COOKIE).iter();
        lines.map(|line| line.to_str().unwrap()).collect()
    }
}

impl Tag {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let mut found = self.attributes.iter().filter(|(other, _)| other == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// All tags of HTML, as a browser finds them: what is not in quotes ends at a blank.
pub(crate) fn tags(html: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(place) = rest.find('<') {
        rest = &rest[place + 1..];
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '>' || c == '/');
        let (name, mut left) = rest.split_at(end.unwrap());
        let mut attributes = Vec::new();
        loop {
            left = left.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
            if let Some(after) = left.strip_prefix('>') {
                rest = after;
                break;
            }
            let end = left
                .find(|c: char| c.is_whitespace() || matches!(c, '=' | '>' | '/'))
                .unwrap();
            let (key, after) = left.split_at(end);
            let (value, after) = match after.strip_prefix('=') {
                None => ("", after),
                Some(after) => match after.strip_prefix('"') {
                    Some(after) => after.split_once('"').unwrap(),
                    None => {
                        let end = after.find(|c: char| c.is_whitespace() || c == '>');
                        after.split_at(end.unwrap())
                    }
                },
            };
            attributes.push((key.to_ascii_lowercase(), value.to_owned()));
            left = after;
        }
        tags.push(Tag {
            name: name.to_ascii_lowercase(),
            attributes,
        });
    }
    tags
}
