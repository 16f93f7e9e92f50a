//! The document describes what is served.

use http::{Method, StatusCode};

use crate::stage::Stage;

#[tokio::test]
async fn the_document_is_openapi_and_every_path_in_it_is_served() {
    let stage = Stage::open().await;
    let answer = stage.caller.get("/openapi.json").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 25, "{}", paths.len());
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let asked = path.replace("{id}", &"01".repeat(32)).replace("{name}", "n");
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = stage.caller.send(method.clone(), &asked, &[], b"").await;
            let status = answer.status.as_u16();
            assert!(status != 405 && status != 500, "{method} {path}: {answer:?}");
            let described = &methods[method.as_str().to_lowercase()]["responses"][status.to_string()];
            assert!(described.is_object(), "{method} {path} answers {status}, which is not described");
        }
    }
    // Every reference leads somewhere.
    let text = document.to_string();
    for reference in text.split("\"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "{name}");
    }
}
